"""The base class of operators that mix the tokens of each channel by a matrix that does not depend on the data."""

from __future__ import annotations

import torch
from torch import Tensor

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs
from sliceformer_lab.batch import Padding


class LinearMix(Attention):
    """An attention whose `mix` is linear in the values of each channel; its matrices are computed with `mix` itself."""

    maps_channels = True

    def maps(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """The matrices (B, C, N, N): column j is the output of `mix` for a one at token j and zeros elsewhere."""
        batch, num_tokens, _ = v.shape
        unit = torch.eye(num_tokens, dtype=v.dtype, device=v.device)[:, :, None].expand(-1, -1, self.width)
        repeated = BlockInputs(None if given.padding is None else _each_repeated(given.padding, num_tokens))
        columns = self.mix(unit.repeat(batch, 1, 1), given=repeated)  # (B*N, N, C), one row per sample and j
        return torch.unflatten(columns, 0, (batch, num_tokens)).permute(0, 3, 2, 1)


def _each_repeated(padding: Padding, times: int) -> Padding:
    """The padding of a batch in which every sample is repeated `times` times in a row."""
    return Padding(padding.lengths.repeat_interleave(times), padding.mask.repeat_interleave(times, dim=0))
