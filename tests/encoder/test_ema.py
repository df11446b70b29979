"""MEGA's moving average at extreme decays and in low precision; golden files have its values."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.testing import assert_close

from sliceformer_lab.encoder.ema import DampedEMA


def tokens(length: int) -> Tensor:
    return torch.randn(3, length, 3, generator=torch.Generator().manual_seed(1))


def ema(bidirectional: bool = True, truncation: int | None = None) -> DampedEMA:
    torch.manual_seed(0)
    return DampedEMA(3, 5, bidirectional=bidirectional, truncation=truncation)


def test_average_is_finite_where_a_decay_is_zero() -> None:
    layer = ema()
    layer.delta.data.fill_(1e3)
    layer.alpha.data.fill_(1e3)
    out = layer(tokens(7))
    out.sum().backward()
    assert out.isfinite().all() and all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


def test_average_keeps_its_precision_under_autocast() -> None:
    layer, x = ema(), tokens(64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        averaged, of_bf16 = layer(x), layer(x.bfloat16())
    assert_close(averaged, layer(x))
    assert_close(of_bf16, layer(x.bfloat16().float()), atol=0.05, rtol=0.02)
