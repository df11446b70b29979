"""The encoder of every task, built from three nodes of the configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sliceformer_lab.attention.base import Attention, BlockInputs, LayerSpec, LayerState
from sliceformer_lab.attention.dropout import Dropout
from sliceformer_lab.batch import Edges, Padding
from sliceformer_lab.config.hybrid import attention_nodes
from sliceformer_lab.config.schema import CheckedNode, Node, check_node
from sliceformer_lab.encoder.base import EncoderBlock
from sliceformer_lab.encoder.encoder_options import EncoderOptions
from sliceformer_lab.encoder.linear_init import initialise_block
from sliceformer_lab.encoder.norm import normalise
from sliceformer_lab.encoder.pool import Pool, ReferenceSort
from sliceformer_lab.encoder.position import Position, build_position
from sliceformer_lab.errors import ConfigError


class Encoder(nn.Module):
    """Positions, then a stack of blocks. (B, N, C) embedded tokens -> (B, N, C), zero on padding.

    Padded rows are set to zero on entry and after every block, so that they cannot affect a real token. The encoder
    leaves them as they are for an attention with `reads_padding`.
    """

    def __init__(
        self, options: EncoderOptions, blocks: Sequence[EncoderBlock], position: Position | None, max_len: int
    ) -> None:
        super().__init__()
        self.options = options
        self.max_len = max_len
        self.position = position
        self.embed_norm = nn.LayerNorm(options.dim, options.embed_norm_eps) if options.embed_norm else nn.Identity()
        self.embed_dropout = Dropout(options.embed_dropout)
        self.blocks = nn.ModuleList(blocks)
        self.norm = blocks[-1].build_final_norm()
        self.keeps_padding = any(block.attention.reads_padding for block in blocks)
        self.gain = blocks[0].gain  # shared by all blocks

    @property
    def attentions(self) -> list[Attention]:
        """The attention of each layer."""
        return [cast(EncoderBlock, block).attention for block in self.blocks]

    def forward(
        self, x: Tensor, padding: Padding | None = None, bias: Tensor | None = None, edges: Edges | None = None
    ) -> Tensor:
        """(B, N, C) -> (B, N, C); bias (B, H, N, N). Raises ValueError for more than `max_len` tokens."""
        return self._run_blocks(x, BlockInputs(padding, bias, edges, LayerState()))

    def with_reference(
        self, x: Tensor, padding: Padding | None = None, bias: Tensor | None = None, edges: Edges | None = None
    ) -> tuple[Tensor, Tensor]:
        """The output of `forward`, and the channel that the last layer's aligned sort follows. -> (B, N, C), (B, N).

        For `ref_min` and `ref_max`; `Pool.check` refuses a last attention without such a channel.
        """
        given, attention = BlockInputs(padding, bias, edges, LayerState()), self.attentions[-1]
        seen: list[tuple[Tensor, Tensor]] = []
        with attention.observed(lambda v, mixed: seen.append((v.detach(), mixed.detach()))):
            x = self._run_blocks(x, given)
        values, mixed = seen[0]
        return x, cast(ReferenceSort, attention).reference_channel(values, given, mixed)

    def pooled(
        self,
        pool: Pool,
        x: Tensor,
        padding: Padding | None = None,
        bias: Tensor | None = None,
        edges: Edges | None = None,
        *,
        with_padding: bool = False,
    ) -> Tensor:
        """One vector per sample from the output of `forward`; `with_padding`: from its padded rows, too. -> (B, C)."""
        reference = None
        if pool.needs_reference:
            x, reference = self.with_reference(x, padding, bias, edges)
        else:
            x = self(x, padding, bias, edges)
        found: Tensor = pool(x, None if with_padding else padding, reference=reference)
        return found

    def _run_blocks(self, x: Tensor, given: BlockInputs) -> Tensor:
        if x.shape[1] > self.max_len:
            raise ValueError(f"{x.shape[1]} tokens are more than the {self.max_len} this encoder was built for")
        x = self.embed_dropout(self.embed_norm(x if self.position is None else self.position(x)))
        x = self._zero_padding(x, given)
        for block in self.blocks:
            x = self._zero_padding(self._run_block(block, x, given), given)
        return x if self.norm is None else self._zero_padding(normalise(self.norm, x, given.padding), given)

    def _run_block(self, block: nn.Module, x: Tensor, given: BlockInputs) -> Tensor:
        """The block's output; with `checkpoint`, only its inputs are kept in training. (B, N, C) -> (B, N, C)."""
        if not (self.options.checkpoint and self.training and torch.is_grad_enabled()):
            output: Tensor = block(x, given)
            return output

        def run(
            x: Tensor, value: Tensor | None, features: Tensor | None
        ) -> tuple[Tensor, Tensor | None, Tensor | None]:
            own = LayerState(value, features)  # later blocks change the one that all share
            return block(x, given._replace(state=own)), own.value, own.edge_features

        state = given.state or LayerState()
        x, state.value, state.edge_features = checkpoint(run, x, state.value, state.edge_features, use_reentrant=False)
        return x

    def _zero_padding(self, x: Tensor, given: BlockInputs) -> Tensor:
        return x if self.keeps_padding else given.zero_padding(x)


def build_encoder(
    encoder: Node | CheckedNode,
    block: Node | CheckedNode,
    attention: Node | Sequence[CheckedNode],
    max_len: int,
    *,
    num_prefix: int = 0,
    grid: tuple[int, int] | None = None,
    order: Tensor | None = None,
    causal: bool = False,
) -> Encoder:
    """The encoder of three nodes, checked already or not, for sequences of at most `max_len` tokens.

    The first `num_prefix` tokens are not the data's own (CLS, graph token). The others lie on the `grid` of an image,
    if there is one, in the `order` (N,) of its patches. Checked attention nodes are one per layer.
    In a `causal` encoder no token receives anything from a later one.
    Raises ConfigError if options do not fit their signatures, each other, or the length, for an attention that does not
    fit into the block, and for an attention or block that looks ahead in a causal encoder.
    """
    options: EncoderOptions = check_node(encoder, "encoder").build()
    checked_block, layers = check_node(block, "block"), attention_nodes(attention, options.depth)
    _check_block(checked_block.target, layers, causal=causal)
    try:
        spec = LayerSpec(
            dim=options.dim,
            num_heads=options.num_heads,
            depth=options.depth,
            max_len=max_len,
            head_dim=options.head_dim,
            num_prefix=num_prefix,
            grid=grid,
            token_order=None if order is None else tuple(order.tolist()),
            rope=options.position == "rope",
            causal=causal,
            attention_dropout=options.attention_dropout,
            value_bias=options.value_bias,
            out_bias=options.out_bias,
            project=not checked_block.target.projects,
        )
    except ValueError as error:
        raise ConfigError(f"encoder: {error}") from error
    blocks: list[EncoderBlock] = []
    for index, node in enumerate(layers):
        layer = replace(spec, index=index)
        blocks.append(checked_block.build(layer, node.build(layer), options, blocks[0] if blocks else None))
        initialise_block(blocks[-1], options)
    if options.checkpoint:
        _refuse_changing_buffers(blocks)
    try:
        position = build_position(options.position, max_len, options.dim, grid, order, std=options.position_std)
    except ValueError as error:
        raise ConfigError(f"encoder: {error}") from error
    return Encoder(options, blocks, position, max_len)


def _check_block(block: type[EncoderBlock], layers: Sequence[CheckedNode], *, causal: bool) -> None:
    """Raises ConfigError if the block looks ahead in a causal encoder, or has no place for an attention."""
    if causal and not block.accepts_causal:
        raise ConfigError(f"block: {block.__name__} reads later tokens; choose block=transformer")
    for layer in layers:
        if not block.accepts(layer.target):
            raise ConfigError(
                f"attention: {block.__name__} has a place for {block.place}, and {layer.target.__name__} is none of "
                "them; choose block=transformer"
            )


def _refuse_changing_buffers(blocks: Sequence[EncoderBlock]) -> None:
    for part in nn.ModuleList(blocks).modules():
        if isinstance(part, nn.BatchNorm1d) or (isinstance(part, Attention) and part.counts_steps):
            raise ConfigError(
                f"encoder.checkpoint=true runs a block twice in each step, and {type(part).__name__} would count both; "
                "set encoder.checkpoint=false"
            )
