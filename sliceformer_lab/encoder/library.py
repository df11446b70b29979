"""One attention, built by name outside the framework."""

from __future__ import annotations

from collections.abc import Mapping

from sliceformer_lab.attention import Attention, LayerSpec, build_layer
from sliceformer_lab.config.compose import load_option


def build_attention(
    name: str,
    *,
    dim: int,
    num_heads: int,
    max_len: int | None = None,
    head_dim: int | None = None,
    grid: tuple[int, int] | None = None,
    overrides: Mapping[str, object] | None = None,
    **options: object,
) -> Attention:
    """The attention of conf/attention/<name>.yaml with `options` in place of its defaults.

    An option that has the name of an argument above goes into `overrides`. Some attentions need `max_len`, the longest
    sequence, or `grid`, the rows and columns of an image's patches, which are the last tokens. Raises ConfigError for
    an unknown name and for options that do not fit.
    """
    num_prefix = max_len - grid[0] * grid[1] if max_len and grid else 0
    spec = LayerSpec(dim=dim, num_heads=num_heads, max_len=max_len, head_dim=head_dim, num_prefix=num_prefix, grid=grid)
    return build_layer(load_option("attention", name) | dict(overrides or {}) | options, spec)
