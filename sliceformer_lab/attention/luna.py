"""Luna: a memory of a few rows attends to the tokens, then the tokens attend to the memory."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs, LayerSpec, LayerState
from sliceformer_lab.attention.softmax import attend
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.option_types import Count


class Luna(Attention):
    """Softmax attention packed into `memory_size` rows and unpacked again. (B, N, dim) -> (B, N, dim).

    The memory is the state that the encoder passes from layer to layer. Layer 0 learns it. Every layer adds its packed
    rows to it, and every layer but the first normalises the memory that it reads. With `embed_norm` the first one does
    too, and its memory starts with noise of deviation 1, as in Luna's models for the Long Range Arena. A later layer
    outside an encoder starts from fixed sinusoids. A sample with fewer tokens than the memory has rows unpacks only as
    many rows.
    Follows the published MEGA repository.
    """

    query: nn.Module
    key: nn.Module

    needs_qk = True
    passes_state = True
    mixable = False  # a block or model that projects need not pass the state on
    order_sensitive = False
    complexity = "N C memory"
    source = "Ma et al. 2021, section 3"
    memory: Tensor  # (S, H*D)

    def __init__(self, spec: LayerSpec, *, memory_size: Count = 256, embed_norm: bool = False) -> None:
        super().__init__(spec)
        self.order_sensitive = spec.rope
        self.pack_query = self._projection(self.width, self.width, spec.value_bias)
        self.unpack_key = self._projection(self.width, self.width, spec.value_bias)
        self.unpack_value = self._projection(self.width, self.width, spec.value_bias)
        self.memory_norm = nn.LayerNorm(self.width) if spec.index or embed_norm else nn.Identity()
        memory = _build_sinusoids(memory_size, self.width)
        if spec.index == 0:
            self.memory = nn.Parameter(memory + torch.randn(memory.shape) * (1.0 if embed_norm else self.width**-0.5))
        else:
            self.register_buffer("memory", memory, persistent=False)

    def attend_in_block(self, x: Tensor, given: BlockInputs) -> Tensor:
        """`forward` with the memory of the layer before; leaves its own to the next layer. -> (B, N, dim)."""
        mixed: Tensor = self(x, given.padding, given.bias, given.state)
        return mixed

    def forward(
        self, x: Tensor, padding: Padding | None = None, bias: Tensor | None = None, state: LayerState | None = None
    ) -> Tensor:
        """(B, N, dim) -> (B, N, dim); reads the memory, or the initial one, and stores the next one in `state`."""
        v, q, k = self.project(x)
        return self.project_out(v, self.mix(v, q, k, self.check_inputs(x, padding, bias)._replace(state=state)))

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """Values and keys (B, N, H*D) to pack, queries to unpack -> (B, N, H*D). Raises ValueError without q or k.

        Reads the memory in `given.state`, or the initial one, and leaves it there with the packed rows added.
        """
        q, k = self.queries_and_keys(q, k)
        padding, state = given.padding, given.state or LayerState()
        memory = self.memory_norm(self.memory.expand(len(v), -1, -1) if state.value is None else state.value)
        packed = self._attend(self.pack_query(memory), k, v, None if padding is None else padding.mask[:, None, None])
        lengths = v.shape[1] if padding is None else padding.lengths[:, None, None, None]
        rows = torch.arange(memory.shape[1], device=v.device) < lengths
        mixed = self._attend(q, self.unpack_key(packed), self.unpack_value(packed), rows.expand(len(v), 1, 1, -1))
        state.value = memory + packed
        return mixed

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None) -> Tensor:
        dropout = self.spec.attention_dropout if self.training else 0.0
        q, k, v = (self.split_heads(x) for x in (q, k, v))
        return self.merge_heads(attend(q, k, v, seen, dropout=dropout))


def _build_sinusoids(num_rows: int, width: int) -> Tensor:
    """Positions (S, C) as in Vaswani et al. 2017, section 3.5."""
    channel = torch.arange(width)
    angle = torch.arange(num_rows)[:, None] * 10000.0 ** (-(channel // 2 * 2) / width)
    return torch.where(channel % 2 == 0, angle.sin(), angle.cos())
