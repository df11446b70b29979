"""The attentions outside the framework: one built by name, or swapped into a timm model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from timm.layers import attention as timm_attention
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from sliceformer_lab.attention import Attention, LayerSpec, build_layer
from sliceformer_lab.config.compose import load_option
from sliceformer_lab.encoder.pretrained import split_attention


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


class TimmAttention(nn.Module):
    """An attention in the interface of timm's own. (B, N, C) -> (B, N, C)."""

    def __init__(self, attention: Attention, dropout: nn.Module) -> None:
        super().__init__()
        self.attention = attention
        self.dropout = dropout

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """Raises ValueError for a mask, which timm's plain ViT never passes."""
        if attn_mask is not None or is_causal:
            raise ValueError("a swapped attention takes no attention mask")
        return self.dropout(self.attention(x))


def swap_attention(
    model: VisionTransformer,
    name: str,
    layers: Iterable[int] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> VisionTransformer:
    """`model` with the attention of `layers` (None: all) replaced in place by the named one.

    Length and patch grid are the model's. Value and output projections keep the model's weights, and so do query and
    key if the new attention has them. A projection of another shape (csp's inner_mult) and parameters that timm's
    attention lacks start from new values. Raises ValueError for a model that is not a plain timm ViT and for a layer
    that it lacks, ConfigError for options that do not fit.
    """
    if not isinstance(model, VisionTransformer):
        raise ValueError(f"swap_attention needs a timm VisionTransformer, got {type(model).__name__}")
    depth = len(model.blocks)
    chosen = range(depth) if layers is None else list(layers)
    for index in chosen:
        if not 0 <= index < depth:
            raise ValueError(f"layers={list(chosen)}: the model has layers 0 to {depth - 1}")
    for index in chosen:
        model.blocks[index].attn = _replacement(model, index, name, overrides)
    return model


def _replacement(model: VisionTransformer, index: int, name: str, overrides: Mapping[str, Any] | None) -> TimmAttention:
    old = model.blocks[index].attn
    if not isinstance(old, timm_attention.Attention):
        raise ValueError(f"layer {index} has no timm attention to swap, it has {type(old).__name__}")
    if extra := sorted({n.split(".")[0] for n, _ in old.named_parameters()} - {"qkv", "proj"}):
        raise ValueError(f"layer {index}: the swap would lose {', '.join(extra)} of timm's attention")
    grid = model.patch_embed.grid_size
    spec = LayerSpec(
        dim=model.embed_dim,
        num_heads=old.num_heads,
        index=index,
        depth=len(model.blocks),
        max_len=model.num_prefix_tokens + grid[0] * grid[1],
        head_dim=old.head_dim,
        num_prefix=model.num_prefix_tokens,
        grid=grid,
        attention_dropout=old.attn_drop.p,
        value_bias=old.qkv.bias is not None,
        out_bias=old.proj.bias is not None,
    )
    new = build_layer(load_option("attention", name) | dict(overrides or {}), spec)
    own = new.state_dict()
    kept = {n: w for n, w in split_attention(old.state_dict()).items() if n in own and own[n].shape == w.shape}
    new.load_state_dict(kept, strict=False)
    weight = old.proj.weight
    return TimmAttention(new.to(weight.device, weight.dtype).train(old.training), old.proj_drop)
