"""A weight for each distance between tokens, computed from the data."""

from __future__ import annotations

from math import sqrt
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs, LayerSpec
from sliceformer_lab.attention.matrix_toeplitz import toeplitz_product


class MatrixToeplitzData(Attention):
    """v + M v / (2 sqrt(L)) with weights from data: token t says what distance t weighs.

    With `taps=published` each weight lies one place off, as in the published code: distance t back weighs what token
    t + 1 says, the longest one what the last token says of the other direction.
    Raises ValueError without spec.max_len.
    """

    mixable = False  # weights are computed from the layer's input
    maps_heads = True
    complexity = "N log N C"
    source = "Hydra, arXiv 2407.09941, section 3"
    deviation = "Hydra: taps lie one place off, so that the diagonal comes from token 1"

    def __init__(self, spec: LayerSpec, *, taps: Literal["aligned", "published"] = "aligned") -> None:
        super().__init__(spec)
        self.aligned = taps == "aligned"
        self.scale = 2 * sqrt(self.max_len)
        self.taps = nn.Linear(spec.dim, 2 * spec.num_heads)  # forward, then reverse

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Values (B, N, H*D), and the weights (B, N, H) of distances back and ahead that each token gives."""
        forward, reverse = F.silu(self.taps(x)).chunk(2, dim=-1)
        return self.value(x), forward, reverse

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """Values (B, N, H*D), with the weights of `project` as q and k -> (B, N, H*D).

        Raises ValueError without them, and for N > max_len.
        """
        if q is None or k is None:
            raise ValueError("matrix_toeplitz_data mixes with weights from the layer's input: mix(v, forward, reverse)")
        self.refuse_longer(v.shape[1])
        # padded taps are zero too: the FFT would spread their rounding errors
        real, forward, reverse = (given.zero_padding(x) for x in (v, q, k))
        back, ahead = forward.mT, reverse.mT[..., 1:]
        if not self.aligned:
            farthest = ahead[..., -1:] * (v.shape[1] == self.max_len)
            back, ahead = torch.cat([back[..., 1:], farthest], -1), torch.cat([back[..., :1], ahead[..., :-1]], -1)
        return v + self.merge_heads(toeplitz_product(self.split_heads(real), back, ahead)) / self.scale
