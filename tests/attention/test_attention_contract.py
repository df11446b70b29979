"""Every option of conf/attention keeps the contract of `sliceformer_lab.attention.base.Attention`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from support.fake_gpu import FakeGPU

from sliceformer_lab.attention import Attention, build_layer
from sliceformer_lab.attention.contract import (
    CHECKS,
    MAX_LEN,
    broken_rule,
    check_gradients_reach_everything,
    check_implied_map_gives_the_mix,
    check_padding_changes_nothing,
    make_spec,
    padded,
    tokens,
)
from sliceformer_lab.config.compose import load_option, option_names

NAMES = option_names("attention")


def broken_rules(name: str, device: str = "cpu") -> dict[str, str | None]:
    """What the option breaks, by the check that finds it."""
    found = {check.__name__: broken_rule(check, load_option("attention", name), device) for check in CHECKS}
    return {check: why for check, why in found.items() if why is not None}


@pytest.mark.parametrize("name", NAMES)
def test_attention_keeps_the_contract(name: str) -> None:
    assert broken_rules(name) == {}


@pytest.fixture
def _exact(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Convolutions in float32: cuDNN rounds their inputs to 10 bits by default, more than the contract tolerates."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    yield


@pytest.mark.gpu
@pytest.mark.usefixtures("_exact")
@pytest.mark.parametrize("name", NAMES)
def test_attention_keeps_the_contract_on_a_gpu(name: str) -> None:
    assert broken_rules(name, "cuda") == {}


def run_on_fake_gpu(layer: Attention) -> None:
    """Forward passes in training and evaluation, with and without padding and bias, of tensors without values."""
    x, padding = padded([tokens(n, batch=1)[0] for n in (MAX_LEN, 5)], MAX_LEN)
    bias = torch.zeros(2, layer.spec.num_heads, MAX_LEN, MAX_LEN)
    with FakeGPU() as gpu:
        gpu.put_module(layer)
        on_gpu, padding = gpu.put(x.requires_grad_()), gpu.put_record(padding)
        for pad in (None, padding) if layer.accepts_padding else (None,):
            for pairwise in (None, gpu.put(bias)) if layer.accepts_bias else (None,):
                for training in (True, False):
                    assert layer.train(training)(on_gpu, pad, pairwise).device.type == "cuda"


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name != "csp_published_padding"])  # it needs values
def test_attention_mixes_no_tensor_of_the_cpu_into_those_of_a_gpu(name: str) -> None:
    for index in (0, 3):
        run_on_fake_gpu(build_layer(load_option("attention", name), replace(make_spec(), index=index)))


def test_a_fake_gpu_finds_a_tensor_that_stayed_on_the_cpu() -> None:
    layer = build_layer(load_option("attention", "csp"), make_spec())
    run_on_fake_gpu(layer)
    forgotten = torch.ones(8)
    layer.mix = lambda v, *_, **__: v + forgotten  # type: ignore[method-assign,assignment]
    with pytest.raises(Exception, match="Please convert all Tensors to FakeTensors first"):
        run_on_fake_gpu(layer)
    layer.mix = lambda v, *_, **__: v + torch.ones(8)  # type: ignore[method-assign,assignment]
    with pytest.raises(Exception, match=r"two different devices|at least two devices"):
        run_on_fake_gpu(layer)


CAUSAL = ("mha", "depthwise_conv", "hsm", "linear", "lion_selective", "random_permutation")  # what causal=true changes
OTHERWISE = (check_padding_changes_nothing, check_gradients_reach_everything, check_implied_map_gives_the_mix)


@pytest.mark.parametrize("name", CAUSAL)
def test_causal_layer_keeps_the_contract(name: str) -> None:
    for check in OTHERWISE:
        check(lambda spec: build_layer(load_option("attention", name), replace(spec, causal=True)))
