"""Sums that decay on their way along the sequence, and the operators that use them, against loops over tokens."""

from __future__ import annotations

import pytest
import torch
from support.subnormals import CountSubnormals
from torch.testing import assert_close

from sliceformer_lab.attention import LayerSpec, build_layer
from sliceformer_lab.attention.contract import make_spec, tokens
from sliceformer_lab.attention.decayed_sum import decayed_sum
from sliceformer_lab.attention.hydra import Hydra
from sliceformer_lab.attention.s4d import S4D
from sliceformer_lab.config.compose import load_option


@pytest.mark.parametrize("chunk", [2, 3, 64])
def test_decayed_sum_in_chunks_equals_the_weights_of_all_pairs(chunk: int) -> None:
    """Chunks of 2 among 37 tokens form groups of groups of chunks."""
    q, k, v = (torch.randn(2, heads, 37, 4, dtype=torch.float64) for heads in (1, 1, 3))
    log_decay = torch.nn.functional.logsigmoid(torch.randn(2, 3, 37, dtype=torch.float64))
    until = log_decay.cumsum(2)
    weights = (q @ k.mT) * (until[..., None] - until[:, :, None]).tril().exp().tril()
    assert_close(decayed_sum(q, k, v, log_decay, chunk), weights @ v, atol=1e-5, rtol=1e-5)


def test_decayed_sum_computes_with_almost_no_subnormal_numbers() -> None:
    """Decays of up to 20 a token, as trained Hydra layers have them."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 2, 200, 16, generator=generator, requires_grad=True) for _ in range(3))
    log_decay = (-20 * torch.rand(2, 2, 200, generator=generator)).requires_grad_()
    with CountSubnormals() as count:
        decayed_sum(q, k, v, log_decay).square().mean().backward()
    assert count.numbers > 1e6
    assert count.subnormals < 1e-4 * count.numbers  # with all weights 1 %: a trained Hydra was three times slower


def test_lion_selective_is_finite_where_factors_are_0_or_1() -> None:
    layer = build_layer(load_option("attention", "lion_selective"), make_spec())
    x = tokens(200, batch=1) * 1e3
    x.requires_grad_()
    layer(x).sum().backward()
    assert x.grad is not None and bool(x.grad.isfinite().all())


def test_hydra_has_the_published_number_of_parameters() -> None:
    layer = Hydra(LayerSpec(dim=512, num_heads=8), head_channels=64)
    assert sum(p.numel() for p in layer.parameters()) == 1_748_016


def test_s4d_equals_two_recurrences() -> None:
    layer = build_layer(load_option("attention", "s4d") | {"state": 4}, make_spec())
    assert isinstance(layer, S4D)
    v = tokens(70, batch=1)[0]  # more than one block of powers
    expected = layer.skip * v
    for kernel, order in ((layer.from_start, range(70)), (layer.from_end, range(69, -1, -1))):
        a = torch.complex(-kernel.log_decay.exp(), kernel.frequency)
        grown = (kernel.log_step.exp()[:, None] * a).exp()
        state = torch.zeros(8, 2, dtype=torch.complex64)
        for i in order:
            after = grown * state + (grown - 1) / a * v[i, :, None]
            read = after if kernel is layer.from_start else state  # the one from the end leaves out the token itself
            expected[i] += 2 * (torch.view_as_complex(kernel.output.detach()) * read).sum(1).real.detach()
            state = after
    assert_close(layer.mix(v[None])[0], expected, atol=1e-4, rtol=1e-4)


def test_a_default_type_is_that_of_every_parameter() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        layer = build_layer(load_option("attention", "s4d"), make_spec())
    finally:
        torch.set_default_dtype(torch.float32)
    assert {parameter.dtype for parameter in layer.parameters()} == {torch.float64}
