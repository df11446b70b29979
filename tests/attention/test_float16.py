"""Sums over many tokens in 16 bits, in which numbers end at 65,504."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from sliceformer_lab.attention import LayerSpec, build_layer
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.compose import load_option


@pytest.mark.parametrize(
    ("name", "options"),
    [("linear", {}), ("linear", {"causal": True}), ("lion", {}), ("cosformer", {}), ("performer", {"kernel": "relu"})],
)
def test_linear_attention_of_many_tokens_is_finite_in_float16(name: str, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    causal = options.pop("causal", False)
    spec = LayerSpec(dim=8, num_heads=1, max_len=9000, causal=causal)
    layer = build_layer(load_option("attention", name) | options, spec).eval()
    v, q, k = 4 + torch.randn(3, 2, 9000, 8)
    padding = None if causal else Padding.from_lengths(torch.tensor([9000, 70]), 9000)
    with torch.no_grad():
        exact = layer.mix(v, q, k) if padding is None else layer.attend(*(x[:, None] for x in (v, q, k)), padding, 0.0)
        layer.half()
        v, q, k = (x.half() for x in (v, q, k))
        found = layer.mix(v, q, k) if padding is None else layer.attend(*(x[:, None] for x in (v, q, k)), padding, 0.0)
    assert_close(found.float(), exact, atol=0.05, rtol=0.02)


@pytest.mark.parametrize("name", ["samsa", "samsa_published"])
def test_scores_of_samsa_are_not_rounded_to_16_bits(name: str) -> None:
    torch.manual_seed(0)
    layer: Any = build_layer(load_option("attention", name) | {"sample_size": 4}, LayerSpec(dim=16, num_heads=2))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        scores = layer.score(torch.randn(1, 500, 16))
    assert scores.dtype == torch.float32 and len(scores[0, :, 0].unique()) == 500


def test_espformer_ranks_tokens_under_autocast_as_in_float32() -> None:
    torch.manual_seed(0)
    layer: Any = build_layer(load_option("attention", "espformer"), LayerSpec(dim=64, num_heads=2)).eval()
    with torch.no_grad():
        for projection in (layer.query, layer.key):
            projection.weight.mul_(15)  # as after training: scores that differ
        x = torch.randn(2, 100, 64)
        exact = layer(x)
        with torch.autocast("cpu", torch.bfloat16):
            found = layer(x).float()
    assert (found - exact).norm() < 0.02 * exact.norm()


def test_lambda_of_differential_attention_is_not_rounded_by_autocast() -> None:
    torch.manual_seed(0)
    layer: Any = build_layer(load_option("attention", "differential"), LayerSpec(dim=16, num_heads=2)).eval()
    exact = layer.factor()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer.factor(), exact)


def test_products_of_many_narrow_queries_and_keys_are_finite_in_float16() -> None:
    spec = LayerSpec(dim=8, num_heads=1, max_len=9000)
    layer = build_layer(load_option("attention", "matrix_low_rank"), spec).half().eval()
    v, q, k = torch.full((1, 9000, 8), 4.0), torch.full((1, 9000, 16), 0.1), torch.full((1, 9000, 16), 4.0)
    assert layer.mix(v.half(), q.half(), k.half()).isfinite().all()
