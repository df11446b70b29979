"""Records the inputs of each operator in a forward pass, to compute token maps or apply other operators to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sliceformer_lab.attention import Attention
from sliceformer_lab.attention.base import ALONE, BlockInputs
from sliceformer_lab.attention.permutation import PermutationAttention
from sliceformer_lab.measures.maps import matrices, spread

MAX_MAP_WEIGHTS = 2**26  # weights of maps in memory at once
MAX_RELATIVE_ERROR = 1e-3  # relative error up to which maps count as explaining an output


@dataclass(frozen=True)
class Mixed:
    """One call of an operator's `mix`."""

    attention: Attention
    v: Tensor  # (B, N, H*D)
    q: Tensor | None
    k: Tensor | None
    given: BlockInputs
    others: Mapping[str, Tensor]  # further inputs of this attention, (B, N, ...)
    output: Tensor  # (B, N, H*D)

    @property
    def lengths(self) -> Tensor:
        """The number of real tokens of each sample (B,)."""
        return torch.full((len(self.v),), self.v.shape[1]) if self.given.padding is None else self.given.padding.lengths

    @property
    def num_maps(self) -> int:
        """The number of maps that describe the operator: one for each channel, or one for each head."""
        return self.v.shape[2] if self.attention.maps_channels else self.attention.spec.num_heads

    def maps_of(self, index: int, limit: int) -> tuple[Tensor, Tensor] | None:
        """The `maps` of one sample; None too where padded rows take part, as in a published code."""
        if self.attention.reads_padding and self.given.padding is not None:
            return None
        return self.sample(index).maps(limit)

    def sample(self, index: int) -> Mixed:
        """The call for one sample without its padding, on which no output depends."""
        rows, tokens = slice(index, index + 1), slice(int(self.lengths[index]))
        bias = self.given.bias
        return replace(
            self,
            v=self.v[rows, tokens],
            q=None if self.q is None else self.q[rows, tokens] if self.q.shape[1] == self.v.shape[1] else self.q[rows],
            k=None if self.k is None else self.k[rows, tokens],
            given=BlockInputs(bias=None if bias is None else bias[rows, :, tokens, tokens]),
            others={name: value[rows, tokens] for name, value in self.others.items()},
            output=self.output[rows, tokens],
        )

    def output_of(self, v: Tensor) -> Tensor:
        """The operator's output for other values (B, N, H*D) with the same queries and keys."""
        with torch.no_grad():
            return self.attention.mix(v, self.q, self.k, self.given, **self.others)

    def maps(self, limit: int) -> tuple[Tensor, Tensor] | None:
        """Indices (M,) of at most `limit` channels or heads, and their maps (M, N, N), for a call with one sample.

        A permutation has one map for each channel, without the weights of a bias. None if maps cannot describe the
        operator because it mixes channels too, and if the maps of all channels would not fit in memory.
        """
        num_tokens = self.v.shape[1]
        if self.q is not None and self.q.shape[1] != num_tokens:  # of a Set Transformer's inducing points
            return None
        limit = max(1, min(limit, MAX_MAP_WEIGHTS // num_tokens**2))
        chosen = spread(self.num_maps, limit)
        if isinstance(self.attention, PermutationAttention):
            moved = self.attention.values_to_permute(self.v, self.given)
            return chosen, matrices(self.attention.source_index(moved, None)[0, :, chosen])
        if self.attention.maps_channels:
            if self.v.shape[2] * num_tokens**2 > 2 * MAX_MAP_WEIGHTS:
                return None
            with torch.no_grad():
                of_channels = self.attention.maps(self.v, self.q, self.k, self.given)  # (1, C, N, N)
            return None if of_channels is None else (chosen, of_channels[0, chosen])
        probed = self._probe_maps()
        return None if probed is None else (chosen, probed[chosen])

    def _probe_maps(self) -> Tensor | None:
        """The maps of all heads (H, N, N), from `mix` of unit vectors; None if it is not linear in each head."""
        num_tokens, width = self.v.shape[1:]
        heads = self.attention.spec.num_heads
        size = width // heads
        rest = self.output_of(torch.zeros_like(self.v))
        maps = self.v.new_zeros(heads, num_tokens, num_tokens)
        for first in range(0, num_tokens, size):  # as many tokens at a time as a head has channels
            count = min(size, num_tokens - first)
            unit = torch.zeros(num_tokens, heads, size, dtype=self.v.dtype)
            unit[torch.arange(first, first + count), :, torch.arange(count)] = 1
            columns = torch.unflatten((self.output_of(unit.flatten(1)[None]) - rest)[0], -1, (heads, size))
            maps[..., first : first + count] = columns[..., :count].transpose(0, 1)
        values = torch.unflatten(self.v[0], -1, (heads, size)).transpose(0, 1)
        again = (maps @ values).transpose(0, 1).flatten(1) + rest[0]
        is_explained = (again - self.output[0]).norm() <= MAX_RELATIVE_ERROR * self.output[0].norm()
        return maps if is_explained else None


@contextmanager
def mixing(blocks: Sequence[Any]) -> Iterator[dict[int, Mixed]]:
    """Records the operator call of every block in the next forward pass, by the block's number from 0.

    Blocks whose attention does not call `mix` (luna) are missing.
    """
    seen: dict[int, Mixed] = {}
    for index, block in enumerate(blocks):
        vars(block.attention)["mix"] = _record_call(block.attention, index, seen)
    try:
        yield seen
    finally:
        for block in blocks:
            del vars(block.attention)["mix"]


def _record_call(attention: Attention, index: int, seen: dict[int, Mixed]) -> Any:
    operator = attention.mix

    def mix(
        v: Tensor,
        q: Tensor | None = None,
        k: Tensor | None = None,
        given: BlockInputs = ALONE,
        **others: Tensor,
    ) -> Tensor:
        output = operator(v, q, k, given, **others)
        seen[index] = Mixed(attention, v, q, k, given, others, output)
        return output

    return mix
