"""CSP and Sliceformer against golden vectors, through YAML, public class and `forward`.

The kernel of this machine computes them; test_permute_backends holds all others to the same bits.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from support.golden_files import Arrays, file_names, load, operations, padding_of
from torch import Tensor
from torch.testing import assert_close

from sliceformer_lab.attention import Attention, LayerSpec, build_layer
from sliceformer_lab.attention.base import BlockInputs
from sliceformer_lab.config.compose import load_option
from sliceformer_lab.permute.schedule import interleave_columns, shift_steps

SORTS = {"ascend", "descend", "interleave", "max_exchange", "aligned"}
ORDERS = {"ascending": "ascend", "descending": "descend"}
SUFFIXES = {  # of the attention's name, by the handling of padding
    "none": "",
    "per_length": "",
    "inf": "",
    "official_mod": "_published_padding",
    "official_pool_over_pads": "_published_padding",
}
SPEC_KEYS = ("layer", "num_layers", "heads", "head_dim", "dtype", "family", "source", "mask_mode")


def overrides(golden: dict[str, Any]) -> dict[str, Any]:
    """The options of a golden file under our names; fails for a key or value that it does not know."""
    assert golden.get("mask_mode", "none") in SUFFIXES
    left = {key: value for key, value in golden.items() if key not in SPEC_KEYS}
    options = {key: left.pop(key) for key in ("shift", "group_size", "inner_mult", "reference") if key in left}
    operator = left.pop("op")
    if golden["family"] == "csp":
        assert operator in ("csp", "perm_only")
        left.pop("groups", None)  # says what group_size says
        options["order"] = ORDERS[left.pop("order")]
    else:
        patterns = ("interleave_rule", "interleave_scope", "layer_order")
        options |= {
            "interleave_rule": "block",
            "interleave_scope": "head",
        }  # the published ones, where a file names none
        options |= {key: value for key in patterns if (value := left.pop(key, None)) is not None}
        options["order"] = operator
    if operator == "aligned" or options.get("reference") == "channel0":
        options |= {"order": "ascend", "reference": "channel0"}  # the reference decides the order
    assert not left, f"no translation for {left}"
    return options


def build(golden: dict[str, Any], width: int, max_len: int, **spec: Any) -> Attention:
    options = overrides(golden)
    inner_mult = options.get("inner_mult", 1)
    heads = golden.get("heads") or width // (golden.get("head_dim") or width)
    layer_spec = LayerSpec(
        num_heads=heads,
        head_dim=width // heads // inner_mult,
        max_len=max_len,
        index=golden.get("layer", 0),
        depth=golden.get("num_layers", 1),
        **{"dim": width, **spec},
    )
    name = golden["family"] + SUFFIXES[golden.get("mask_mode", "none")]
    if name == "csp_published_padding":
        assert options.pop("reference", "none") == "none"
    return build_layer(load_option("attention", name) | options, layer_spec).eval()


def load_weights(layer: Attention, arrays: Arrays) -> None:
    names = {"w_v": "value.weight", "b_v": "value.bias", "w_o": "out.weight", "b_o": "out.bias"}
    layer.load_state_dict({ours: arrays[theirs] for theirs, ours in names.items() if theirs in arrays})


def sources(maps: Tensor) -> Tensor:
    """Implied maps (B, C, N, N) as the source token of each slot (B, N, C), -1 for an empty row."""
    assert set(maps.unique().tolist()) <= {0.0, 1.0}
    return maps.argmax(dim=3).where(maps.any(dim=3), -1).transpose(1, 2)


def check_layer(golden: dict[str, Any], arrays: Arrays) -> None:
    x = arrays["x"].clone().requires_grad_()
    biases = {"value_bias": "b_v" in arrays, "out_bias": "b_o" in arrays}
    layer = build(golden, arrays["w_v"].shape[0], x.shape[1], dim=x.shape[2], **biases)
    load_weights(layer, arrays)
    padding = padding_of(arrays)
    mask = torch.ones(x.shape[:2], dtype=torch.bool) if padding is None else padding.mask
    maps = layer.implied_map(x.detach(), padding)
    assert maps is not None
    assert torch.equal(sources(maps), arrays["src"])
    seen: Arrays = {}
    layer.value.register_forward_hook(lambda _, __, v: seen.update(v=v))
    layer.out.register_forward_pre_hook(lambda _, inputs: seen.update(perm=inputs[0]))
    y = layer(x, padding)
    v, perm = seen["v"], seen["perm"]
    dv, dx = torch.autograd.grad(y, (v, x), arrays["g"])
    assert_close(v, arrays["v"], rtol=0, atol=0)
    assert_close(perm, arrays["perm"], rtol=0, atol=0)
    assert_close(y[mask], arrays["y"][mask], rtol=0, atol=1e-5)
    assert_close(dv, arrays["dv"], rtol=1e-4, atol=1e-5)
    assert_close(dx, arrays["dx"], rtol=1e-4, atol=1e-5)
    if "cls_index" in arrays:
        lowest = layer.reference_channel(layer.value(x)).masked_fill(~mask, torch.inf).argmin(dim=1)
        assert torch.equal(lowest, arrays["cls_index"])
        assert_close(y[torch.arange(len(y)), lowest], arrays["cls_out"], rtol=0, atol=1e-5)


def check_permutations(golden: dict[str, Any], arrays: Arrays) -> None:
    """A file without weights: `v` and one output `perm`, or one per order under the order's name."""
    dtype = getattr(torch, golden.get("dtype", "float32"))
    v = arrays["v"].to(dtype)
    outputs = {golden["op"]: arrays["perm"]} if "perm" in arrays else {key: arrays[key] for key in SORTS & set(arrays)}
    for operator, expected in outputs.items():
        layer = build(golden | {"op": operator}, v.shape[2], v.shape[1], project=False)
        permuted = layer.mix(v, given=BlockInputs(padding_of(arrays)))
        assert permuted.dtype == dtype
        assert_close(permuted.float(), expected, rtol=0, atol=0)


def check_shift_tables(arrays: Arrays) -> None:
    for key, step in arrays.items():
        name, _, column = key.rpartition("__")
        if column != "step":
            continue
        shift, _, sizes = name.partition("__")
        size = {letter: int(number) for letter, number in re.findall(r"([NCLlDG])(\d+)", sizes)}
        steps = shift_steps(
            shift,
            size["C"],
            size["N"],
            num_heads=size["C"] // size.get("D", size["C"]),
            index=size["l"],
            depth=size["L"],
            window=size.get("G", 2),
            reference=sizes.endswith("_ref"),
        )
        exact = arrays.get(f"{name}__step_exact", step)
        assert all(ours in both for ours, *both in zip(steps, step.tolist(), exact.tolist(), strict=True)), name


def check_interleave_tables(arrays: Arrays) -> None:
    for key, descending in arrays.items():
        rule, _, sizes = key.partition("__")
        size = {letter: int(number) for letter, number in re.findall(r"([CLl])(\d+)", sizes)}
        columns = interleave_columns(
            {"block": "block", "sine": "sine_exact"}[rule], size["C"], size["L"] - 1 - size["l"]
        )
        assert columns == descending.tolist(), key


TABLES = {"shift_tables": check_shift_tables, "interleave_tables": check_interleave_tables}


def test_every_operation_has_a_committed_file() -> None:
    assert operations("csp") == {"csp", "perm_only", "shift_tables"}
    assert operations("sliceformer") == SORTS | {"perm_only", "interleave_tables"}


@pytest.mark.parametrize("name", file_names("csp") + file_names("sliceformer"))
def test_equals_golden_vectors(name: str) -> None:
    golden, arrays = load(name)
    if golden["op"] in TABLES:
        TABLES[golden["op"]](arrays)
    elif "y" in arrays:
        check_layer(golden, arrays)
    else:
        check_permutations(golden, arrays)
