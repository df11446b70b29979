"""SAMSA against golden vectors, through YAML, public class and `mix`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.golden_files import Arrays, file_names, fill, load, operations, padding_of
from torch import Tensor
from torch.testing import assert_close

from sliceformer_lab.attention import LayerSpec, build_layer, samsa
from sliceformer_lab.attention.base import BlockInputs
from sliceformer_lab.attention.samsa import SAMSA, proxy_weights
from sliceformer_lab.attention.samsa_published import MAX_DERIVATIVE, ResidualScore
from sliceformer_lab.config.compose import load_option

SAID_ELSEWHERE = ("family", "op", "source", "candidate_order", "mask", "noise", "eval", "gradient_cap")


def build(golden: dict[str, Any], arrays: Arrays) -> SAMSA:
    _, heads, _, head_dim = arrays["queries"].shape
    spec = LayerSpec(dim=heads * head_dim, num_heads=heads)
    is_capped = golden.get("gradient_cap") == MAX_DERIVATIVE
    options = {key: value for key, value in golden.items() if key not in SAID_ELSEWHERE}
    options["sample_size"] = options.pop("k")
    if is_capped:
        assert options.pop("proxy") == "pairwise"
    layer = build_layer(load_option("attention", "samsa_published" if is_capped else "samsa") | options, spec)
    layer.supports.load_state_dict({name: arrays[f"support_{name}"] for name in ("scores", "keys", "values")})
    return layer.train(not golden["eval"])


def dense_proxy(golden: dict[str, Any], arrays: Arrays) -> Tensor:
    """Our weights of the file's candidates, laid out as (B, H, K, candidates)."""
    order = torch.cat([arrays["selected"], arrays["remaining"]], dim=-1)
    own, rivals = proxy_weights(arrays["z"].gather(-1, order), golden["proxy"], golden["tau"])
    dense = torch.zeros_like(arrays["proxy"]).scatter(-1, arrays["selected"][..., None], own)
    return dense.scatter(-1, arrays["remaining"][:, :, None].expand_as(rivals), rivals)


def by_first_column(slots: Tensor) -> Tensor:
    """Slots (B, H, K, D) sorted by their first channel: the published code gathers them in any order."""
    return slots.take_along_dim(slots[..., :1].argsort(dim=2), 2)


def test_every_operation_has_a_committed_file() -> None:
    assert operations("samsa") == {"samsa_core", "samsa_official_core", "samsa_official_score"}


@pytest.mark.parametrize("name", file_names("samsa", "samsa_core", "samsa_official_core"))
def test_equals_golden_vectors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    golden, arrays = load(name)
    layer = build(golden, arrays)
    noise = arrays["gumbel"] if golden["noise"] else torch.zeros(())
    monkeypatch.setattr(samsa, "gumbel_noise", lambda like: noise.expand_as(like).clone())
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

    y = layer.split_heads(layer.mix(v, q, k, scores=scores, given=BlockInputs(padding)))
    mask = torch.ones_like(y[:, 0, :, 0], dtype=torch.bool) if padding is None else padding.mask
    assert_close(y.transpose(1, 2)[mask], arrays["y"].transpose(1, 2)[mask], rtol=0, atol=1e-5)
    (y * arrays["g"]).sum().backward()
    supports = {f"support_{name}": parameter for name, parameter in layer.supports.named_parameters()}
    for key, tensor in (inputs | supports).items():
        ours = torch.zeros_like(tensor) if tensor.grad is None else tensor.grad  # None: hard evaluation reads no score
        assert_close(ours, arrays[f"d_{key}"], rtol=1e-4, atol=1e-5, msg=lambda text, key=key: f"d_{key}: {text}")


@pytest.mark.parametrize("name", file_names("samsa", "samsa_official_score"))
def test_residual_score_equals_golden_vectors(name: str) -> None:
    _, arrays = load(name)
    score = ResidualScore(arrays["x"].shape[2], arrays["g"].shape[2])
    for ours, theirs in {"mlp.0": "1", "mlp.2": "2", "out": "3"}.items():
        fill(score.get_submodule(ours), arrays[f"w_{theirs}"], arrays.get(f"b_{theirs}"))
    score.norm.scale.data = arrays["norm_scale"]
    x = arrays["x"].clone().requires_grad_()
    scores = score(x)
    (dx,) = torch.autograd.grad(scores, x, arrays["g"])
    assert_close(scores, arrays["scores"], rtol=0, atol=1e-5)
    assert_close(dx, arrays["dx"], rtol=1e-4, atol=1e-5)
