"""MEGA's attention against sums over tokens, inside chunks and under padding."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import sliceformer_lab.attention.contract as checks
from sliceformer_lab.attention import LayerSpec, build_layer
from sliceformer_lab.attention.layer_state import BlockInputs
from sliceformer_lab.attention.mega import Mega
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.compose import load_option
from sliceformer_lab.config.schema import ConfigError

HEADS, WIDTH, Z, MAX_LEN = 2, 6, 4, 12
FUNCTIONS = ("softmax", "laplace")


def mega(spec: LayerSpec | None = None, **options: Any) -> Mega:
    torch.manual_seed(0)
    spec = spec or LayerSpec(dim=WIDTH, num_heads=HEADS, max_len=MAX_LEN, project=False)
    layer = Mega(spec, **({"z_dim": Z} | options)).eval()
    if layer.relative_bias is not None:
        torch.nn.init.normal_(layer.relative_bias)
    return layer


@cache
def yaml_options() -> dict[str, Any]:
    return load_option("attention", "mega")


def inputs(num_tokens: int = MAX_LEN, batch: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    v, q, k = (torch.randn(batch, num_tokens, width, generator=generator) for width in (WIDTH, Z, Z))
    return v, 3 * q, 3 * k


def expected(layer: Mega, v: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """One sample without padding, (N, C), token by token."""
    num_tokens, size = len(v), layer.chunk_size or len(v)
    out = torch.zeros_like(v)
    for head in range(HEADS):
        channels = slice(head * WIDTH // HEADS, (head + 1) * WIDTH // HEADS)
        narrow = slice(head * Z // HEADS, (head + 1) * Z // HEADS)
        for i in range(num_tokens):
            first = i // size * size
            keys = range(first, min(first + size, num_tokens))
            scale = len(keys) if layer.laplace else math.sqrt(Z // HEADS)
            scores = torch.stack([q[i, narrow] @ k[j, narrow] / scale for j in keys])
            if layer.relative_bias is not None:
                middle = layer.relative_bias.shape[1] // 2
                scores = scores + torch.stack([layer.relative_bias[head, middle + j - i] for j in keys])
            if layer.laplace:
                weights = 0.5 * (1 + torch.erf((scores - math.sqrt(0.5)) / math.sqrt(1 / (2 * math.pi))))
            else:
                weights = scores.softmax(0)
            out[i, channels] = sum(w * v[j, channels] for w, j in zip(weights, keys, strict=True))
    return out


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("chunk_size", [None, 4, 5, 64])
@pytest.mark.parametrize("relative_bias", [True, False])
def test_equals_the_sum_over_tokens(function: str, chunk_size: int | None, relative_bias: bool) -> None:
    layer = mega(function=function, chunk_size=chunk_size, relative_bias=relative_bias)
    v, q, k = inputs()
    by_hand = torch.stack([expected(layer, *sample) for sample in zip(v, q, k, strict=True)])
    assert_close(layer.mix(v, q, k), by_hand)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("chunk_size", [None, 4, 5])
def test_chunks_without_a_real_key_change_nothing_and_stay_finite(function: str, chunk_size: int | None) -> None:
    layer = mega(function=function, chunk_size=chunk_size)
    v, q, k = inputs()
    padding = Padding.from_lengths(torch.tensor([2, 5, 12]), MAX_LEN)
    assert padding is not None
    garbage = ~padding.mask[..., None]
    real = [x.masked_fill(garbage, 1e3).requires_grad_() for x in (v, q, k)]
    out = layer.mix(*real, given=BlockInputs(padding))
    gradients = torch.autograd.grad(out.sum(), [*real, *layer.parameters()], retain_graph=True)
    assert all(x.isfinite().all() for x in (out, *gradients))
    of_real = torch.autograd.grad(out[padding.mask].sum(), real)
    assert not any(gradient[~padding.mask].any() for gradient in of_real)
    for row, length in enumerate((2, 5, 12)):
        assert_close(out[row, :length], expected(layer, v[row, :length], q[row, :length], k[row, :length]))


def test_a_chunk_of_padding_attends_to_itself_with_softmax_and_to_nothing_with_laplace() -> None:
    v, q, k = inputs(8, batch=1)
    padding = Padding.from_lengths(torch.tensor([3]), 8)
    layer = mega(chunk_size=4)
    assert_close(layer.mix(v, q, k, given=BlockInputs(padding))[0, 4:], expected(layer, v[0, 4:], q[0, 4:], k[0, 4:]))
    assert not mega(chunk_size=4, function="laplace").mix(v, q, k, given=BlockInputs(padding))[0, 4:].any()


@pytest.mark.parametrize(
    "options",
    [
        {"function": "laplace"},
        {"relative_bias": False},
        {"chunk_size": 5},
        {"chunk_size": 5, "function": "laplace"},
        {"chunk_size": 64, "function": "laplace", "relative_bias": False},
    ],
    ids=str,
)
def test_every_option_keeps_the_contract(options: dict[str, Any]) -> None:
    for check in checks.CHECKS:
        check(lambda spec: build_layer(yaml_options() | options, spec))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_dropout_takes_weights_in_training_only(function: str) -> None:
    spec = LayerSpec(dim=WIDTH, num_heads=HEADS, max_len=MAX_LEN, project=False, attention_dropout=0.5)
    layer, x = mega(spec, function=function), inputs()
    sure = layer.mix(*x)
    assert_close(sure, layer.mix(*x), rtol=0, atol=0)
    assert not torch.allclose(layer.train().mix(*x), sure)


def test_only_chunks_make_it_linear() -> None:
    assert "N^2" in mega().complexity
    assert mega(chunk_size=5).complexity == "N C G"


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ({}, {"z_dim": 5}, "num_heads=2 does not divide z_dim=5"),
        ({"max_len": None}, {}, "relative_bias=true needs the longest sequence"),
        ({}, {"chunk_size": 0}, "chunk_size: given 0"),
        ({}, {"function": "sigmoid"}, "function: given 'sigmoid'"),
    ],
)
def test_impossible_options_are_refused_in_one_sentence(
    spec: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        build_layer(yaml_options() | options, checks.make_spec(**spec))
    assert "\n" not in str(error.value)


def test_more_tokens_than_the_bias_has_distances_for_are_refused() -> None:
    with pytest.raises(ValueError, match="built for 12 tokens, got 13"):
        mega().mix(*inputs(13))
    assert mega(relative_bias=False).mix(*inputs(13)).shape == (3, 13, WIDTH)
