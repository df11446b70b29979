"""Options of attentions that cannot work are refused in one sentence; unusual sizes that do work."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from annotated_types import Ge, Gt
from torch import Tensor

import sliceformer_lab
from sliceformer_lab.attention import LayerSpec, build_layer
from sliceformer_lab.attention.contract import DIM, make_spec, tokens
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.checked import ModelNodes, check_model
from sliceformer_lab.config.compose import load_option, option_names
from sliceformer_lab.config.schema import ConfigError, locate, schema
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.training.build import check_compatibility

node = partial(load_option, "attention")


def model_of(attention: dict[str, Any], **encoder: Any) -> ModelNodes:
    nodes = {"encoder": ("encoder", "tiny"), "block": ("block", "vit"), "optim": ("optim", "fast")}
    given = {key: load_option(*name) for key, name in nodes.items()} | {"attention": attention}
    return check_model(given | {"encoder": given["encoder"] | encoder})


def refusal(model: ModelNodes, passes_bias: bool) -> tuple[str, set[str]]:
    """Why a model cannot be trained on digits, and the attentions that the sentence recommends."""
    with pytest.raises(ConfigError) as refused:
        check_compatibility(model, DataSpec(name="digits", num_classes=2), passes_bias=passes_bias, causal=False)
    reason, _, able = str(refused.value).partition("; attentions that can: ")
    return reason, set(able.split(", "))


@pytest.mark.parametrize("attention", [node("csp"), node("hybrid") | {"pattern": ["mha", "csp"]}])
def test_rope_without_queries_names_those_that_have_them(attention: dict[str, Any]) -> None:
    reason, able = refusal(model_of(attention, position="rope"), passes_bias=False)
    assert reason == "encoder.position=rope rotates queries and keys, which CSP cannot take"
    assert {"mha", "linear", "luna", "reformer"} <= able and not {"csp", "mean", "hybrid"} & able


def test_task_with_a_bias_refuses_and_names_exactly_those_that_take_one() -> None:
    reason, able = refusal(model_of(node("mean")), passes_bias=True)
    assert reason == "digits passes a pairwise bias, which Mean cannot take"
    assert {name.partition("_")[0] for name in able} == {"csp", "hybrid", "mha", "samsa", "sliceformer"}


def lower_bounds() -> list[tuple[str, str, int]]:
    """(attention, option, the largest value that is too small) for every option with a lower bound."""
    found = []
    for name in option_names("attention"):
        for option, (hint, _) in schema(locate(node(name)["_target_"])).items():
            parts = _annotations(hint)
            found += [(name, option, part.ge - 1) for part in parts if isinstance(part, Ge)]
            found += [(name, option, part.gt) for part in parts if isinstance(part, Gt)]
    return found


def _annotations(hint: Any) -> list[Any]:
    """The annotations anywhere inside a type; of pydantic's fields, their parts."""
    own = [part for field in getattr(hint, "__metadata__", ()) for part in getattr(field, "metadata", [field])]
    return own + [part for inner in getattr(hint, "__args__", ()) for part in _annotations(inner)]


MISFITS = [
    ((2, 4, 4, DIM), None, None, r"takes tokens \(B, N, dim\) .*, got \(2, 4, 4, 8\)"),
    ((2, 9, DIM), torch.ones(2, 9, dtype=torch.bool), None, r"takes a Padding of \(2, 9\), .*, got Tensor"),
    ((2, 9, DIM), Padding.from_lengths(torch.tensor([5]), 9), None, r"takes a Padding of \(2, 9\), .*, got \(1, 9\)"),
    ((2, 9, DIM), Padding.from_lengths(torch.tensor([5, 3]), 7), None, r"takes a Padding of .*, got \(2, 7\)"),
    ((2, 9, DIM), None, torch.zeros(2, 9, 9), r"takes a bias \(2, 2, 9, 9\), got \(2, 9, 9\)"),
]


@pytest.mark.parametrize("name", ["csp", "mha", "samsa", "rala", "luna", "longformer_cls"])
@pytest.mark.parametrize(("shape", "padding", "bias", "message"), MISFITS)
def test_inputs_that_do_not_fit_one_another_are_refused(
    name: str, shape: tuple[int, ...], padding: Any, bias: Tensor | None, message: str
) -> None:
    layer = build_layer(load_option("attention", name), make_spec())
    with pytest.raises(ValueError, match=f"{layer.name} {message}"):
        layer(torch.randn(shape), padding, bias)


class FirstToken(sliceformer_lab.attention.Attention):
    """Gives one token, which a residual sum would broadcast to all."""

    def mix(self, v: Tensor, q: Any = None, k: Any = None, given: Any = None) -> Tensor:
        return v[:, :1]


def test_a_mix_of_another_shape_than_its_values_is_refused() -> None:
    with pytest.raises(ValueError, match=r"FirstToken\.mix gave \(2, 1, 8\) for values \(2, 9, 8\)"):
        FirstToken(make_spec())(torch.randn(2, 9, DIM))


@pytest.mark.parametrize("name", option_names("attention"))
def test_an_input_without_tokens_is_refused_in_one_sentence(name: str) -> None:
    with pytest.raises(ValueError, match=r"^\w+ takes tokens \(B, N, dim\) with N > 0, got \(2, 0, 8\)$"):
        build_layer(load_option("attention", name), make_spec())(torch.zeros(2, 0, DIM))


def test_every_size_of_an_attention_has_a_lower_bound() -> None:
    bounded = {(name, option) for name, option, _ in lower_bounds()}
    for name in option_names("attention"):
        for option, value in node(name).items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                assert (name, option) in bounded or option == "temperature", (name, option)


IMPOSSIBLE: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [  # attention, spec, options, message
    ("rala", {}, {"kernel_size": 4}, "attention.kernel_size: given 4, should be odd"),
    ("depthwise_conv", {}, {"kernel_size": 4}, "attention.kernel_size: given 4, should be odd"),
    ("polaformer", {"head_dim": 3}, {}, "must be even, got 3"),
    ("agent", {"grid": (4, 4)}, {"agents": 5}, "agents=5 must be a square on an image, such as 4"),
    ("hydra", {}, {"head_channels": 5}, "head_channels=5 does not divide the 16 channels"),
    ("s4d", {}, {"state": 3}, "attention.state: given 3, should be a multiple of 2"),
    ("reformer", {}, {"num_buckets": 5}, "attention.num_buckets: given 5, should be a multiple of 2"),
    ("reformer", {"max_len": None}, {"wrap": True}, "set max_len"),
    ("sparse", {}, {"block_size": 4, "num_summary": 4}, "num_summary must be within"),
    ("mega", {}, {"z_dim": 5}, "num_heads=2 does not divide z_dim=5"),
    ("mega", {}, {"function": "sigmoid"}, "function: given 'sigmoid'"),
    ("samsa", {}, {"tau": 0.0}, "attention.tau: given 0.0"),
    ("samsa", {}, {"proxy": "triple"}, "attention.proxy: given 'triple'"),
    ("mha", {"max_len": None}, {"times_tokens": True}, "set max_len"),
    ("mha", {"project": False}, {"qk_norm": True}, "need mha's own projections"),
    ("mha", {"project": False}, {"gate": True}, "need mha's own projections"),
    ("synthesizer", {"project": False}, {"mode": "dense"}, "mode=dense needs the layer's input"),
    ("synthesizer", {"rope": True}, {"mix_dot_product": False}, "mix_dot_product=false has none"),
    ("csp", {"max_len": None}, {"shift": "none", "order": "random"}, "order=random draws a direction"),
    ("csp", {}, {"reference": "channel0", "order": "descend"}, "order=descend has no effect with reference"),
    ("csp", {}, {"grid": True}, "these tokens have none; use grid=false"),
    ("sliceformer", {}, {"reference": "channel0", "order": "interleave"}, "order=interleave has no effect"),
    ("shift", {"grid": (3, 4)}, {"steps": "s2", "fill": "circular"}, "fill=circular shifts along the sequence"),
]


@pytest.mark.parametrize(("name", "spec", "options", "message"), IMPOSSIBLE)
def test_options_that_cannot_work_are_refused_in_one_sentence(
    name: str, spec: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        build_layer(node(name) | options, make_spec(**spec))
    assert "\n" not in str(error.value)


COUNTS_POSITIONS = ("cosformer", "gmlp", "linformer", "mega", "polaformer", "random_mixing", "synthesizer")


@pytest.mark.parametrize("name", [*COUNTS_POSITIONS, "bigbird", "csp", "sinkhorn"])
def test_attention_that_counts_positions_needs_max_len(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^attention: [^\n]*max_len[^\n]*$"):
        sliceformer_lab.build_attention(name, dim=8, num_heads=2)


@pytest.mark.parametrize("name", [*COUNTS_POSITIONS, "csp_random_order"])
def test_more_tokens_than_positions_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="16 tokens, got 17"):
        build_layer(node(name), make_spec())(tokens(17))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in ("mha", "linear", "samsa", "synthesizer", "rala", "hydra", "matrix_toeplitz_data")),
        ("synthesizer", {"mode": "dense", "mix_dot_product": False}),
        ("gmlp", {}),
    ],
)
def test_mix_without_what_it_reads_is_refused(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"^{name} .*mix\(v, "):
        build_layer(node(name) | options, make_spec()).mix(tokens(16))


LARGE = {
    "local": {"block_size": 100},
    "local_strided": {"block_size": 100, "block_layout": "strided_lra"},
    "sparse": {"block_size": 100},
    "sinkhorn": {"block_size": 100},
    "bigbird": {"block_size": 100, "num_random": 5},
    "longformer": {"back": 100, "ahead": 100, "num_global": 100},
    "reformer": {"chunk_length": 50, "num_buckets": 100},
    "mega_chunk": {"chunk_size": 100},
    "samsa": {"sample_size": 100},
    "linformer": {"num_slots": 100},
    "performer": {"num_features": 100},
    "luna": {"memory_size": 100},
    "synthesizer": {"mode": "factorized_random", "rank": 100},
    "csp": {"group_size": 100},
    "depthwise_conv": {"kernel_size": 101},
}


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("num_tokens", [1, 7])
def test_window_block_or_sample_beyond_the_sequence_works(name: str, num_tokens: int) -> None:
    options = node(name.removesuffix("_strided")) | LARGE[name]
    layer = build_layer(options, LayerSpec(dim=8, num_heads=2, max_len=7))
    x = torch.randn(2, num_tokens, 8, requires_grad=True)
    out = layer(x)
    out.sum().backward()
    assert x.grad is not None
    assert out.isfinite().all() and x.grad.isfinite().all()


@pytest.mark.parametrize("name", ["luna", "reformer", "polaformer", "rala", "samsa", "hydra", "gmlp"])
def test_an_attention_that_is_not_mixable_is_refused_where_another_projects(name: str) -> None:
    with pytest.raises(ConfigError, match="so a block or model that projects these itself has no place for it"):
        build_layer(node(name), make_spec(project=False))
