"""A weight for each distance between tokens, computed from the data."""

from __future__ import annotations

from math import sqrt
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sliceformer_lab.attention.base import Attention, LayerSpec
from sliceformer_lab.attention.layer_state import ALONE, BlockInputs
from sliceformer_lab.attention.matrix_toeplitz import toeplitz_product
from sliceformer_lab.batch import Padding


class MatrixToeplitzData(Attention):
    """v + M v / (2 sqrt(L)) with weights from data: token t says what distance t weighs.

    With `taps=published` each weight lies one place off, as in the published code: distance t back weighs what token
    t + 1 says, the longest one what the last token says of the other direction.
    Raises ValueError without spec.max_len.
    """

    mixable = False  # weights are computed from the layer's input
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
        return v + self.merge_heads(self._moved(self.split_heads(v), q, k, given.padding))

    def implied_map(self, x: Tensor, padding: Padding | None = None, bias: Tensor | None = None) -> Tensor:
        """The matrices (B, H, N, N) that act on the values, v itself included."""
        _, forward, reverse = self.project(x)
        unit = torch.eye(x.shape[1], dtype=x.dtype, device=x.device).expand(len(x), self.spec.num_heads, -1, -1)
        return unit + self._moved(unit, forward, reverse, padding)

    def _moved(self, v: Tensor, forward: Tensor | None, reverse: Tensor | None, padding: Padding | None) -> Tensor:
        """c M v for values (B, H, N, E). Taps of padding are zero, too: the FFT would spread their rounding errors."""
        if forward is None or reverse is None:
            raise ValueError("matrix_toeplitz_data mixes with weights from the layer's input: mix(v, forward, reverse)")
        self.refuse_longer(v.shape[2])
        if padding is not None:
            v, forward, reverse = (
                part.masked_fill(~mask, 0)
                for part, mask in (
                    (v, padding.mask[:, None, :, None]),
                    (forward, padding.mask[:, :, None]),
                    (reverse, padding.mask[:, :, None]),
                )
            )
        back, ahead = forward.mT, reverse.mT[..., 1:]
        if not self.aligned:
            farthest = ahead[..., -1:] * (v.shape[2] == self.max_len)
            back, ahead = torch.cat([back[..., 1:], farthest], -1), torch.cat([back[..., :1], ahead[..., :-1]], -1)
        return toeplitz_product(v, back, ahead) / self.scale
