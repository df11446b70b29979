"""FNet: Fourier mixing without parameters, a control."""

from __future__ import annotations

import torch
from torch import Tensor

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs
from sliceformer_lab.attention.precision import widen
from sliceformer_lab.batch import Padding, fill_padding


class FNet(Attention):
    """The real part of the Fourier transform over the real tokens and all channels, scaled to keep the norm."""

    complexity = "N C log(N C)"
    source = "Lee-Thorp et al. 2022, equation (3)"
    deviation = "FNet: does not divide by sqrt(N C); no linear maps before and after"

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, C) -> (B, N, C). Computed in float32 or better, because torch has no transform in half precision."""
        over_channels = torch.fft.fft(widen(v), dim=2, norm="ortho")
        if given.padding is None:
            mixed: Tensor = torch.fft.fft(over_channels, dim=1, norm="ortho")
        else:
            mixed = _ragged_fft(over_channels, given.padding)
        return mixed.real.to(v.dtype)


def _ragged_fft(x: Tensor, padding: Padding) -> Tensor:
    """The transform of each sample's n real tokens at length n. Complex (B, N, C) -> (B, N, C), 0 at padding.

    Chirp-z (Bluestein 1970): 2jk = j^2 + k^2 - (k-j)^2 turns a transform of any length into one convolution, so the
    whole batch needs three transforms of one length >= 2N - 1.
    """
    num_tokens = x.shape[1]
    size = 1 << (2 * num_tokens - 2).bit_length()
    chirp = _build_chirp(padding.lengths, num_tokens, x.real.dtype)[:, :, None]  # (B, N, 1)
    lags = torch.cat([chirp, chirp.new_zeros(len(x), size - 2 * num_tokens + 1, 1), chirp[:, 1:].flip(1)], dim=1).conj()
    signal = fill_padding(x * chirp, padding)
    spectrum = torch.fft.fft(signal, size, dim=1) * torch.fft.fft(lags, dim=1)
    transformed: Tensor = torch.fft.ifft(spectrum, dim=1)[:, :num_tokens] * chirp
    return fill_padding(transformed / padding.lengths[:, None, None].to(x.real.dtype).sqrt(), padding)


def _build_chirp(lengths: Tensor, num_tokens: int, dtype: torch.dtype) -> Tensor:
    """exp(-i pi k^2 / n) for token k of a sample with n real tokens, complex (B, N).

    k^2 is reduced mod 2n in integers, because an angle in floating point loses all digits at long lengths.
    """
    k = torch.arange(num_tokens, device=lengths.device)
    angle = (k**2 % (2 * lengths[:, None])).to(dtype) * (-torch.pi / lengths[:, None].to(dtype))
    return torch.polar(torch.ones_like(angle), angle)
