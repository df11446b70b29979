"""Rotary positions make every attention depend on the order of the tokens."""

from __future__ import annotations

import pytest
import torch

from sliceformer_lab.attention import LayerSpec, build_layer
from sliceformer_lab.config.compose import load_option

NAMES = [
    *("linear", "performer", "mha", "softpick", "samsa", "sliced_relu"),
    *("sparse", "reformer", "bigbird", "sinkhorn", "longformer", "local"),
]


@pytest.mark.parametrize("name", NAMES)
def test_an_attention_with_rope_says_that_it_depends_on_the_order(name: str) -> None:
    torch.manual_seed(0)
    spec = LayerSpec(dim=16, num_heads=2, max_len=8, rope=True)
    layer = build_layer(load_option("attention", name), spec).eval()
    x, order = torch.randn(1, 8, 16), torch.randperm(8)
    assert layer.depends_on_order
    assert not torch.allclose(layer(x[:, order]), layer(x)[:, order], atol=1e-6)
