"""MEGA's moving average against sums over tokens, at extreme decays and in low precision."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from sliceformer_lab.encoder.ema import DampedEMA


def tokens(length: int) -> Tensor:
    return torch.randn(3, length, 3, generator=torch.Generator().manual_seed(1))


def ema(bidirectional: bool = True, truncation: int | None = None) -> DampedEMA:
    torch.manual_seed(0)
    return DampedEMA(3, 5, bidirectional=bidirectional, truncation=truncation)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("length", "truncation"), [(1, None), (2, None), (7, None), (7, 1), (7, 3), (9, 20)])
def test_average_equals_the_sum_over_tokens(bidirectional: bool, length: int, truncation: int | None) -> None:
    layer, x = ema(bidirectional, truncation), tokens(length)
    p, decay = layer.delta.sigmoid(), 1 - layer.delta.sigmoid() * layer.alpha.sigmoid()
    expected = x * layer.omega
    for i in range(length):
        for j in range(length):
            distance = abs(i - j)
            if distance >= (truncation or length):
                continue
            weight = (p * layer.beta * layer.gamma * decay**distance).sum(1) / 5**0.5  # (3,) or (6,)
            if j <= i:
                expected[:, i] = expected[:, i] + weight[:3] * x[:, j]
            if j >= i and bidirectional:
                expected[:, i] = expected[:, i] + weight[3:] * x[:, j]
    assert_close(layer(x), nn.functional.silu(expected), atol=1e-5, rtol=1e-5)


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
