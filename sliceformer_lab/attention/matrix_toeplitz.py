"""A learned weight for each distance between tokens: a convolution over the whole length."""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor, nn

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs, LayerSpec
from sliceformer_lab.attention.precision import widen


class MatrixToeplitz(Attention):
    """v + M v / (2 sqrt(L)) with one learned weight for each distance, both ways, in each head.

    Computed by FFT in float32 or better. Raises ValueError without spec.max_len.
    """

    maps_channels = True
    complexity = "N log N C"
    source = "Hydra, arXiv 2407.09941, section 3"
    deviation = "Hydra: taps lie one place off, and only max_len tokens are accepted"

    def __init__(self, spec: LayerSpec) -> None:
        super().__init__(spec)
        taps = nn.init.xavier_uniform_(torch.empty(spec.num_heads, 2 * self.max_len - 1))
        self.forward_taps = nn.Parameter(taps[:, : self.max_len].clone())  # (H, L): 0 to L - 1 tokens back
        self.reverse_taps = nn.Parameter(taps[:, self.max_len :].clone())  # (H, L - 1): 1 to L - 1 tokens ahead

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, C) -> (B, N, C). Raises ValueError for N > max_len."""
        n = v.shape[1]
        self.refuse_longer(n)
        v = given.zero_padding(v)
        moved = toeplitz_product(self.split_heads(v), self.forward_taps[:, :n], self.reverse_taps[:, : n - 1])
        return v + self.merge_heads(moved) / (2 * sqrt(self.max_len))


def toeplitz_product(v: Tensor, forward: Tensor, reverse: Tensor) -> Tensor:
    """sum_j f[i - j] v_j over tokens back and r[j - i - 1] v_j over tokens ahead: (B, H, N, D) -> (B, H, N, D)."""
    n = v.shape[2]
    size = 2 * n
    gap = forward.new_zeros(*forward.shape[:-1], 1)
    kernel = widen(torch.cat([forward, gap, reverse.flip(-1)], dim=-1))  # of a circular sequence of 2 N tokens
    spectrum = torch.fft.rfft(kernel, size)[..., None] * torch.fft.rfft(widen(v), size, dim=2)
    return torch.fft.irfft(spectrum, size, dim=2)[:, :, :n].to(v.dtype)
