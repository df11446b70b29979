"""SAMSA against golden vectors, through YAML, public class and `mix`."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from support.golden_files import Arrays, file_names, load, padding_of
from torch import Tensor
from torch.testing import assert_close

from sliceformer_lab.attention import LayerSpec, build_layer, samsa
from sliceformer_lab.attention.samsa import SAMSA, proxy_weights
from sliceformer_lab.attention.token_score import ResidualScore
from sliceformer_lab.config.compose import load_option

OPERATIONS = {  # and the score of masked tokens, which no selected candidate has
    "samsa_core": (None, "tokens with mask False get score -inf"),
    "samsa_official_core": (None, "tokens with mask False get score -1e9"),
}
ALL = file_names("samsa__")
FILES = [name for name in ALL if load(name)[0]["op"] in OPERATIONS]
SCORES = [name for name in ALL if load(name)[0]["op"] == "samsa_official_score"]
FIXED = {"family": "samsa", "candidate_order": "tokens then supports"}  # only these values are known


def overrides(golden: dict[str, Any]) -> dict[str, Any]:
    """The options of a golden file under our names; fails for a key or value that it does not know."""
    left = {key: value for key, value in golden.items() if key != "source"}
    for key, value in FIXED.items():
        assert left.pop(key) == value
    operation = left.pop("op")
    assert left.pop("mask") in OPERATIONS[operation]
    noise, evaluation = left.pop("noise"), left.pop("eval")
    options = {"sample_size": left.pop("k")}
    options |= {key: left.pop(key) for key in ("mode", "proxy", "tau")}
    if operation == "samsa_core":
        assert noise != evaluation or (not noise and golden["mode"] == "soft"), "only training draws noise"
        options["noise_on_support"] = left.pop("noise_on_support")
    else:
        assert not noise, "the published code's values have no noise"
        options["gradient_cap"] = left.pop("gradient_cap")
    assert not left, f"no translation for {left}"
    return options


@cache
def yaml_options() -> dict[str, Any]:
    return load_option("attention", "samsa")


def build(golden: dict[str, Any], arrays: Arrays) -> SAMSA:
    _, heads, _, head_dim = arrays["queries"].shape
    spec = LayerSpec(dim=heads * head_dim, num_heads=heads, project=False)
    layer = build_layer(yaml_options() | overrides(golden), spec)
    layer.supports.load_state_dict({name: arrays[f"support_{name}"] for name in ("scores", "keys", "values")})
    # without noise the published code trains all the same; ours is then only evaluated
    return layer.train(not golden["eval"] if "gradient_cap" in golden else golden["noise"])


def dense_proxy(golden: dict[str, Any], arrays: Arrays) -> Tensor:
    """Our weights of the file's candidates, laid out as (B, H, K, candidates)."""
    order = torch.cat([arrays["selected"], arrays["remaining"]], dim=-1)
    own, rivals = proxy_weights(arrays["z"].gather(-1, order), golden["proxy"], golden["tau"])
    dense = torch.zeros_like(arrays["proxy"]).scatter(-1, arrays["selected"][..., None], own)
    return dense.scatter(-1, arrays["remaining"][:, :, None].expand_as(rivals), rivals)


def by_first_column(slots: Tensor) -> Tensor:
    """Slots (B, H, K, D) sorted by their first channel: the published code gathers them in any order."""
    return slots.take_along_dim(slots[..., :1].argsort(dim=2), 2)


def test_golden_files_are_there() -> None:
    assert FILES and SCORES and set(FILES) | set(SCORES) == set(ALL)


@pytest.mark.parametrize("surprise", [{"temperature": 1}, {"op": "samsa_layer"}, {"noise": False}], ids=str)
def test_an_unknown_option_fails(surprise: dict[str, Any]) -> None:
    known, _ = load("samsa__pairwise_hard_n24_k4")
    with pytest.raises((AssertionError, KeyError)):
        overrides(known | surprise)


@pytest.mark.parametrize("name", FILES)
def test_equals_golden_vectors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    golden, arrays = load(name)
    layer = build(golden, arrays)
    monkeypatch.setattr(samsa, "gumbel_noise", lambda like: arrays.get("gumbel", torch.zeros_like(like)).clone())
    padding = padding_of(arrays)
    inputs = {key: arrays[key].clone().requires_grad_() for key in ("values", "queries", "keys", "scores")}
    v, q, k = (layer.merge_heads(inputs[key]) for key in ("values", "queries", "keys"))
    scores = inputs["scores"].transpose(1, 2)

    sample = layer.sample(k, v, scores, padding)
    if "selected" in arrays:
        assert torch.equal(sample.index, arrays["selected"])
        assert_close(sample.scores, arrays["z"].gather(-1, arrays["selected"]), rtol=0, atol=1e-5)
        assert_close(dense_proxy(golden, arrays), arrays["proxy"], rtol=0, atol=1e-5)
    unsorted = "selected" not in arrays and golden["eval"] and golden["mode"] == "hard"
    in_order = by_first_column if unsorted else Tensor.clone
    assert_close(in_order(sample.keys), in_order(arrays["k_tilde"]), rtol=0, atol=1e-5)
    assert_close(in_order(sample.values), in_order(arrays["v_tilde"]), rtol=0, atol=1e-5)

    y = layer.split_heads(layer.mix(v, q, k, scores=scores, padding=padding))
    mask = torch.ones_like(y[:, 0, :, 0], dtype=torch.bool) if padding is None else padding.mask
    assert_close(y.transpose(1, 2)[mask], arrays["y"].transpose(1, 2)[mask], rtol=0, atol=1e-5)
    (y * arrays["g"]).sum().backward()
    supports = {f"support_{name}": parameter for name, parameter in layer.supports.named_parameters()}
    for key, tensor in (inputs | supports).items():
        ours = torch.zeros_like(tensor) if tensor.grad is None else tensor.grad  # None: hard evaluation reads no score
        assert_close(ours, arrays[f"d_{key}"], rtol=1e-4, atol=1e-5, msg=lambda text, key=key: f"d_{key}: {text}")


@pytest.mark.parametrize("name", SCORES)
def test_residual_score_equals_golden_vectors(name: str) -> None:
    golden, arrays = load(name)
    known = {"family", "op", "source", "norm"}
    assert set(golden) == known and golden["norm"] == "rms over channels, eps 1e-8 added to the root"
    score = ResidualScore(arrays["x"].shape[2], arrays["g"].shape[2])
    layers = {"mlp.0": "1", "mlp.2": "2", "out": "3"}
    kinds = {"weight": "w", "bias": "b"}
    weights = {
        f"{ours}.{kind}": arrays[f"{k}_{theirs}"] for ours, theirs in layers.items() for kind, k in kinds.items()
    }
    score.load_state_dict(weights | {"norm.scale": arrays["norm_scale"]})
    x = arrays["x"].clone().requires_grad_()
    scores = score(x)
    (dx,) = torch.autograd.grad(scores, x, arrays["g"])
    assert_close(scores, arrays["scores"], rtol=0, atol=1e-5)
    assert_close(dx, arrays["dx"], rtol=1e-4, atol=1e-5)
