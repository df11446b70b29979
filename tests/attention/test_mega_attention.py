"""MEGA's attention: heads, its cost and its limits; golden files have its weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from sliceformer_lab.attention.contract import make_spec, tokens
from sliceformer_lab.attention.mega import Mega


def mega(num_heads: int, **options: Any) -> Mega:
    torch.manual_seed(0)
    layer = Mega(make_spec(num_heads=num_heads, max_len=12, project=False, dim=4 * num_heads), **options).eval()
    if layer.relative_bias is not None:
        torch.nn.init.normal_(layer.relative_bias)
    return layer


@pytest.mark.parametrize("function", ["softmax", "laplace"])
@pytest.mark.parametrize("chunk_size", [None, 5])
@pytest.mark.parametrize("relative_bias", [True, False])
def test_each_head_is_an_attention_of_one_head(function: str, chunk_size: int | None, relative_bias: bool) -> None:
    options = {"function": function, "chunk_size": chunk_size, "relative_bias": relative_bias}
    both, (v, q, k) = mega(2, z_dim=6, **options), torch.randn(3, 2, 12, 8)
    q, k = 3 * q[..., :6], 3 * k[..., :6]
    alone = []
    for head in range(2):
        layer, narrow = mega(1, z_dim=3, **options), slice(3 * head, 3 * head + 3)
        if both.relative_bias is not None:
            layer.relative_bias = torch.nn.Parameter(both.relative_bias[head : head + 1])
        alone.append(layer.mix(v[..., 4 * head : 4 * head + 4], q[..., narrow], k[..., narrow]))
    assert_close(both.mix(v, q, k), torch.cat(alone, dim=-1))


def test_without_a_bias_there_may_be_more_tokens_than_max_len() -> None:
    x = tokens(13)
    assert mega(2, z_dim=8, relative_bias=False).mix(x, x, x).shape == (2, 13, 8)
