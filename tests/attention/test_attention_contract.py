"""Every option of conf/attention keeps the contract of `sliceformer_lab.attention.base.Attention`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import torch
from support.fake_gpu import FakeGPU

from sliceformer_lab.attention import Attention, build_layer
from sliceformer_lab.attention.contract import (
    CHECKS,
    MAX_LEN,
    broken_rule,
    check_cost_is_linear_unless_declared,
    check_gradients_reach_everything,
    check_implied_map_gives_the_mix,
    check_mix_is_all_there_is_without_projections,
    check_order_matters_iff_declared,
    check_padding_changes_nothing,
    make_spec,
    padded,
    tokens,
)
from sliceformer_lab.config.compose import load_option, option_names

NAMES = option_names("attention")


def broken_rules(name: str, device: str = "cpu") -> dict[str, str]:
    """What the option breaks, by the check that finds it."""
    found = {check.__name__: broken_rule(check, load_option("attention", name), device) for check in CHECKS}
    return {check: why for check, why in found.items() if why is not None}


@pytest.mark.parametrize("name", NAMES)
def test_attention_keeps_the_contract(name: str) -> None:
    broken = broken_rules(name)
    if torch.__version__ < "2.15" and "MKL FFT error" in broken.get("check_lengths", ""):
        pytest.xfail("torch transforms no empty batch before 2.15")
    assert broken == {}


def test_every_attention_builds_without_memory() -> None:
    with torch.device("meta"):
        layers = [build_layer(load_option("attention", name), make_spec()) for name in NAMES]
    assert all(parameter.is_meta for layer in layers for parameter in layer.parameters())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "changes", [{}, {"grid": (4, 4), "token_order": tuple(range(15, -1, -1)), "index": 1}], ids=str
)
def test_a_layer_that_lost_its_values_gives_them_back_with_its_state_or_refuses(
    name: str, changes: dict[str, Any]
) -> None:
    layer = build_layer(load_option("attention", name), make_spec(**changes)).eval()
    state, lost = layer.state_dict(), copy.deepcopy(layer).to("meta")
    with suppress(ValueError):
        lost.to_empty(device="cpu")
        for undefined in (*lost.parameters(), *lost.buffers()):
            undefined.detach().fill_(1)
        lost.load_state_dict(state)
        torch.manual_seed(0)  # of an attention that is random in evaluation
        expected = layer(tokens(MAX_LEN))
        torch.manual_seed(0)
        torch.testing.assert_close(lost(tokens(MAX_LEN)), expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["linear", "cosformer"])
def test_one_compiled_program_serves_all_lengths(name: str) -> None:
    programs: list[torch.fx.GraphModule] = []

    def count(program: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
        programs.append(program)
        return program.forward

    torch._dynamo.reset()  # type: ignore[no-untyped-call]
    layer = build_layer(load_option("attention", name), make_spec())
    compiled = torch.compile(layer, backend=count, fullgraph=True)
    for num_tokens in range(5, 13):
        torch.testing.assert_close(compiled(tokens(num_tokens)), layer(tokens(num_tokens)))
    assert len(programs) == 2  # the first length, and all others


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


CAUSAL = ("mha", "depthwise_conv", "hsm", "linear", "lion_selective", "random_permutation")  # what causal=true changes
OTHERWISE = (check_padding_changes_nothing, check_gradients_reach_everything, check_implied_map_gives_the_mix)


@pytest.mark.parametrize("name", CAUSAL)
def test_causal_layer_keeps_the_contract(name: str) -> None:
    for check in OTHERWISE:
        check(lambda spec: build_layer(load_option("attention", name), replace(spec, causal=True)))


SCORES = [{"mode": mode, "mix_dot_product": mix} for mode in ("factorized_random", "dense") for mix in (True, False)]
SAMPLERS = [  # every pair of options; test_samsa and its golden vectors have the other combinations
    *(("hard", "pairwise", False), ("hard", "softmax", True), ("soft", "pairwise", True), ("soft", "softmax", False)),
]
OPTIONS: list[tuple[str, dict[str, Any]]] = [  # that no file of conf/attention has; blocks far below the tests' length
    ("csp", {"bias_formula": "sort_of_mix"}),
    ("csp", {"group_size": 5, "order": "random", "shift": "exp_code"}),
    ("longformer", {"back": 2, "ahead": 1}),
    ("longformer_cls", {"back": 2, "ahead": 1}),
    ("bigbird", {"block_size": 2, "num_random": 1}),
    ("sparse", {"block_size": 4, "num_summary": 1}),
    ("reformer", {"chunk_length": 4, "num_hashes": 2, "num_buckets": 4}),
    ("sinkhorn", {"block_size": 4}),
    ("mha", {"qk_norm": True, "gate": True, "times_tokens": True}),
    ("mega", {"relative_bias": False}),
    ("mega", {"chunk_size": 5, "function": "laplace"}),
    ("mega", {"chunk_size": 64, "function": "laplace", "relative_bias": False}),
    ("performer", {"num_features": 10, "kernel": "relu"}),
    ("linformer", {"num_slots": 4, "share_kv": False}),
    ("local", {"block_size": 5}),
    ("local", {"block_size": 3, "block_layout": "strided_lra"}),
    ("sinkformer", {"n_it": 4}),
    ("synthesizer", {"mix_dot_product": False}),
    *(("synthesizer", {"rank": 3} | scores) for scores in SCORES),
    *(("samsa", {"sample_size": 3, "mode": mode, "proxy": proxy, "supports": on}) for mode, proxy, on in SAMPLERS),
]


@pytest.mark.parametrize(("name", "options"), OPTIONS, ids=str)
def test_every_option_keeps_the_contract(name: str, options: dict[str, Any]) -> None:
    left_out = {
        "sparse": [check_cost_is_linear_unless_declared],  # N / b keys for every token
        "sinkhorn": [check_cost_is_linear_unless_declared],  # and as many blocks for every block
    }.get(name, [])
    for check in CHECKS:
        if check not in left_out:
            torch.manual_seed(0)
            check(lambda spec: build_layer(load_option("attention", name) | options, replace(spec, index=1)))


def test_rope_keeps_the_contract() -> None:
    left_out = check_order_matters_iff_declared, check_mix_is_all_there_is_without_projections  # projecting rotates
    for check in CHECKS:
        if check not in left_out:
            check(lambda spec: build_layer(load_option("attention", "mha"), replace(spec, rope=True)))


ROTATING = (
    *("linear", "performer", "mha", "softpick", "samsa", "sliced_relu"),
    *("sparse", "reformer", "bigbird", "sinkhorn", "longformer", "local"),
)


@pytest.mark.parametrize("name", ROTATING)
def test_an_attention_with_rope_says_that_it_depends_on_the_order(name: str) -> None:
    layer = build_layer(load_option("attention", name), make_spec(rope=True)).eval()
    x, order = torch.randn(1, MAX_LEN, 8), torch.randperm(MAX_LEN)
    assert layer.depends_on_order
    assert not torch.allclose(layer(x[:, order]), layer(x)[:, order], atol=1e-6)


@pytest.mark.parametrize(
    "name", ["mha", "linformer", "local", "mega", "mega_chunk", "sinkformer", "synthesizer", "reformer", "softpick"]
)
def test_dropout_takes_weights_in_training_only(name: str) -> None:
    node, x = load_option("attention", name), tokens(MAX_LEN)
    layer, plain = (build_layer(node, make_spec(attention_dropout=rate)) for rate in (0.5, 0.0))
    plain.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer.eval()(x), plain.eval()(x))
    maps = layer.implied_map(x)
    assert not torch.allclose(layer.train()(x), plain(x))
    torch.testing.assert_close(layer.implied_map(x), maps, rtol=0, atol=0)
