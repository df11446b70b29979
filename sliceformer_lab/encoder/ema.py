"""The multi-dimensional damped moving average of MEGA: a long convolution of each channel, computed with FFTs."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from sliceformer_lab.batch import Padding, fill_padding


class DampedEMA(nn.Module):
    """Each channel averaged over its past and, if bidirectional, its future. (B, N, C) -> (B, N, C).

    The sum over t of kernel[t] x[i - t] and, if bidirectional, of a second kernel with x[i + t], both truncated at
    `truncation` tokens. A kernel is the sum of `ema_dim` decaying powers. A skip connection with one weight per channel
    and SiLU follow. Padding counts as zeros. Cost: O(N C (log N + ema_dim)).
    Source: MEGA (Ma et al. 2023), section 3.1.
    """

    def __init__(self, dim: int, ema_dim: int, *, bidirectional: bool, truncation: int | None) -> None:
        super().__init__()
        self.bidirectional, self.truncation = bidirectional, truncation
        kernels = 2 * dim if bidirectional else dim  # the first C for the past, the others for the future
        signs = torch.tensor([1.0, -1.0]).repeat(-(-ema_dim // 2))[:ema_dim]
        self.delta = nn.Parameter(0.2 * torch.randn(kernels, ema_dim))
        self.alpha = nn.Parameter(0.2 * torch.randn(kernels, ema_dim))
        self.beta = nn.Parameter(signs + 0.02 * torch.randn(kernels, ema_dim))
        self.gamma = nn.Parameter(torch.randn(kernels, ema_dim))
        self.omega = nn.Parameter(torch.randn(dim))

    def kernel(self, length: int) -> Tensor:
        """The weight of a token at distance t, (C or 2C, length)."""
        p = self.delta.sigmoid()
        decay = 1 - p * self.alpha.sigmoid()
        weight = p * self.beta * self.gamma / math.sqrt(p.shape[1])
        powers = decay[..., None] ** torch.arange(length, device=p.device)  # (2C, ema_dim, length)
        return (weight[:, None] @ powers).squeeze(1)

    def forward(self, x: Tensor, padding: Padding | None = None) -> Tensor:
        """(B, N, C) -> (B, N, C)."""
        real = fill_padding(x, padding)
        with torch.autocast(x.device.type, enabled=False):  # there is no FFT in bf16
            averaged = self._convolve(real.float()).to(x.dtype)
        return functional.silu(averaged + x * self.omega)

    def _convolve(self, x: Tensor) -> Tensor:
        num_tokens = x.shape[1]
        length = num_tokens if self.truncation is None else min(self.truncation, num_tokens)
        size = 1 << (num_tokens + length - 2).bit_length()  # a power of two, long enough that nothing wraps around
        response = torch.fft.rfft(self.kernel(length), size)
        if self.bidirectional:
            back, ahead = response.chunk(2)
            response = back + ahead.conj()  # the conjugate is the kernel reversed in time
        return torch.fft.irfft(torch.fft.rfft(x.mT, size) * response, size)[..., :num_tokens].mT
