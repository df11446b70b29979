"""Token mixing: the contract in `base`, and one file per attention."""

from __future__ import annotations

from collections.abc import Mapping

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs, LayerSpec
from sliceformer_lab.config.compose import load_option
from sliceformer_lab.config.hybrid import attention_nodes
from sliceformer_lab.config.schema import Node
from sliceformer_lab.errors import ConfigError

__all__ = ["ALONE", "Attention", "BlockInputs", "LayerSpec", "build_attention", "build_layer"]


def build_layer(attention: Node, spec: LayerSpec) -> Attention:
    """The attention of layer `spec.index`, from an attention node and what the encoder decides.

    Raises ConfigError if the options do not fit, with one another or with `spec`.
    """
    nodes = attention_nodes(attention)
    layer: Attention = nodes[spec.index % len(nodes)].build(spec)
    return layer


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
    an unknown name, for options that do not fit, and on the meta device for an attention whose state is not all of it.
    """
    num_prefix = max_len - grid[0] * grid[1] if max_len and grid else 0
    spec = LayerSpec(dim=dim, num_heads=num_heads, max_len=max_len, head_dim=head_dim, num_prefix=num_prefix, grid=grid)
    layer = build_layer(load_option("attention", name) | dict(overrides or {}) | options, spec)
    if lost := sorted(own for own, buffer in layer.named_buffers() if buffer.is_meta and own not in layer.state_dict()):
        raise ConfigError(
            f"attention: {name} computes {lost[0]} when it is built, and no file holds them, so a model that is built "
            "on the meta device, as from_pretrained does, would lack them; call its constructor, then load_state_dict"
        )
    return layer
