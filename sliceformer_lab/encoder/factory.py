"""The encoder that every task shares, and how it is built from three nodes of the configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from sliceformer_lab.attention import build_attention
from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.stateful import carried_state
from sliceformer_lab.batch import Edges, Padding
from sliceformer_lab.config.schema import Node, check_options, construct
from sliceformer_lab.encoder.base import EncoderBlock
from sliceformer_lab.encoder.encoder_options import EncoderOptions
from sliceformer_lab.encoder.norm import normalise
from sliceformer_lab.encoder.pool import ReferenceSort
from sliceformer_lab.encoder.position import Position, build_position
from sliceformer_lab.errors import ConfigError


class Encoder(nn.Module):
    """Positions, then a stack of blocks. (B, N, C) embedded tokens -> (B, N, C), zero on padding.

    Padded rows are zeroed on entry and after every block, so that nothing in them can reach a real token; only under
    an attention with padding=published they live on, as in the published code.
    """

    def __init__(
        self, options: EncoderOptions, blocks: Sequence[EncoderBlock], position: Position | None, max_len: int
    ) -> None:
        super().__init__()
        self.options = options
        self.max_len = max_len
        self.position = position
        self.embed_dropout = nn.Dropout(options.embed_dropout)
        self.blocks = nn.ModuleList(blocks)
        self.norm = blocks[-1].build_final_norm()
        self.keeps_padding = any(block.attention.published for block in blocks)
        self.gain = blocks[0].gain if blocks[0].shares_gain else None
        for block in blocks:
            if block.shares_gain:
                block.gain = self.gain

    def forward(
        self, x: Tensor, padding: Padding | None = None, bias: Tensor | None = None, edges: Edges | None = None
    ) -> Tensor:
        """(B, N, C) -> (B, N, C); bias (B, H, N, N). Raises ValueError for more than `max_len` tokens."""
        with carried_state(self.blocks):
            return self._last(self._all_but_last(x, padding, bias, edges), padding, bias, edges)

    def with_reference(
        self, x: Tensor, padding: Padding | None = None, bias: Tensor | None = None, edges: Edges | None = None
    ) -> tuple[Tensor, Tensor]:
        """What `forward` returns, and the channel that the last layer's aligned sort follows. -> (B, N, C), (B, N).

        For `ref_min` and `ref_max`; `Pool.check` says whether the last attention has such a channel.
        """
        with carried_state(self.blocks):
            x = self._all_but_last(x, padding, bias, edges)
            block = cast(EncoderBlock, self.blocks[-1])
            attention = cast(ReferenceSort, block.attention)
            with torch.no_grad():  # only its order counts
                reference = attention.reference_channel(block.attention_input(x, padding), padding, bias)
            return self._last(x, padding, bias, edges), reference

    def _all_but_last(self, x: Tensor, padding: Padding | None, bias: Tensor | None, edges: Edges | None) -> Tensor:
        if x.shape[1] > self.max_len:
            raise ValueError(f"{x.shape[1]} tokens are more than the {self.max_len} this encoder was built for")
        x = self.embed_dropout(x if self.position is None else self.position(x))
        x = self._zero_padding(x, padding)
        for block in self.blocks[:-1]:
            x = self._zero_padding(block(x, padding, bias, edges), padding)
        return x

    def _last(self, x: Tensor, padding: Padding | None, bias: Tensor | None, edges: Edges | None) -> Tensor:
        x = self._zero_padding(self.blocks[-1](x, padding, bias, edges), padding)
        return x if self.norm is None else self._zero_padding(normalise(self.norm, x, padding), padding)

    def _zero_padding(self, x: Tensor, padding: Padding | None) -> Tensor:
        if padding is None or self.keeps_padding:
            return x
        return x.masked_fill(~padding.mask[..., None], 0)


def build_encoder(
    encoder: Node,
    block: Node,
    attention: Node,
    max_len: int,
    *,
    num_prefix: int = 0,
    grid: tuple[int, int] | None = None,
    order: Tensor | None = None,
) -> Encoder:
    """The encoder of three nodes for sequences of at most `max_len` tokens, the first `num_prefix` of them not the
    data's own (CLS, graph token), the others on an image's `grid` if there is one, in the `order` (N,) of its patches.

    Raises ConfigError if options do not fit their signatures, each other, or the length.
    """
    options: EncoderOptions = construct(encoder, where="encoder")
    places = None if order is None else tuple(order.tolist())
    blocks = [
        _build_block(options, block, attention, index, max_len, num_prefix, grid, places)
        for index in range(options.depth)
    ]
    try:
        position = build_position(options.position, max_len, options.dim, grid, order)
    except ValueError as error:
        raise ConfigError(f"encoder: {error}") from error
    return Encoder(options, blocks, position, max_len)


def _build_block(
    options: EncoderOptions,
    block: Node,
    attention: Node,
    index: int,
    max_len: int,
    num_prefix: int,
    grid: tuple[int, int] | None,
    token_order: tuple[int, ...] | None,
) -> EncoderBlock:
    try:
        spec = LayerSpec(
            dim=options.dim,
            num_heads=options.num_heads,
            index=index,
            depth=options.depth,
            max_len=max_len,
            head_dim=options.head_dim,
            num_prefix=num_prefix,
            grid=grid,
            token_order=token_order,
            rope=options.position == "rope",
            attention_dropout=options.attention_dropout,
            value_bias=options.value_bias,
            out_bias=options.out_bias,
            project=not check_options(block, "block").projects,
        )
    except ValueError as error:
        raise ConfigError(f"encoder: {error}") from error
    built: EncoderBlock = construct(block, spec, build_attention(attention, spec), options, where="block")
    return built
