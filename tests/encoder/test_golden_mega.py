"""MEGA's block, its moving average and MEGA+CSP against golden vectors, through YAML and public classes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.golden_files import KINDS, Arrays, file_names, load, operations, padding_of
from torch.testing import assert_close

from sliceformer_lab.attention import LayerSpec, build_layer
from sliceformer_lab.attention.base import BlockInputs
from sliceformer_lab.config.compose import load_option
from sliceformer_lab.config.schema import build_object
from sliceformer_lab.encoder.ema import DampedEMA
from sliceformer_lab.encoder.encoder_options import EncoderOptions
from sliceformer_lab.encoder.mega_block import MegaBlock

BLOCK = {  # golden option -> ours
    "ndim": "ema_dim",
    "bidirectional": "bidirectional",
    "truncation": "truncation",
    "norm": "norm",
    "norm_eps": "norm_eps",
    "prenorm": "norm_first",
    "ffn": "ffn",
}
SAID_ELSEWHERE = ("family", "op", "source", "layer", "num_layers", "max_positions", "hdim", "ffn_width")
SAID_ELSEWHERE += ("mask_mode", "activation", "mode")
EMA = ("delta", "alpha", "beta", "gamma", "omega")
NORM = {"w": "weight", "b": "bias", "scale": "scale", "mean": "running_mean", "var": "running_var"}
LINEAR = {"v": "value", "m": "gates", "h": "out", "1": "mlp.fc1", "2": "mlp.fc2"}


def overrides(golden: dict[str, Any]) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """Our block's options, the attention's name and its options; fails for a key or value that it does not know."""
    left = {key: value for key, value in golden.items() if key not in SAID_ELSEWHERE}
    block = {ours: left.pop(theirs) for theirs, ours in BLOCK.items() if theirs in left}
    chunk = left.pop("chunk_size", -1)
    mega = {"z_dim": left.pop("zdim"), "function": left.pop("attention"), "chunk_size": None if chunk == -1 else chunk}
    csp = {key: left.pop(key) for key in ("shift", "group_size") if key in left}
    mixer = left.pop("mixer")
    assert not left, f"no translation for {left}"
    return (block, *{"attention": ("mega", mega), "csp": ("csp", csp)}[mixer])


def build(golden: dict[str, Any], arrays: Arrays) -> MegaBlock:
    block, name, attention = overrides(golden)
    is_csp = name == "csp"
    spec = LayerSpec(
        dim=arrays["x"].shape[2],
        num_heads=1,
        head_dim=golden["hdim"],
        index=golden["layer"],
        depth=golden["num_layers"],
        max_len=arrays["x"].shape[1] if is_csp else golden["max_positions"],  # steps of CSP are those of N tokens
        project=False,
    )
    encoder = EncoderOptions(
        dim=spec.dim, depth=spec.depth, num_heads=1, mlp_dim=golden["ffn_width"] or 1, position="none"
    )
    mixer = build_layer(load_option("attention", name) | attention, spec)
    layer: MegaBlock = build_object(load_option("block", "mega") | block, spec, mixer, encoder, where="block")
    layer.load_state_dict(weights(cut(golden, arrays) if is_csp else arrays, layer))
    return layer.eval()


def cut(golden: dict[str, Any], arrays: Arrays) -> Arrays:
    """The arrays without what serves queries and keys alone: z rows of w_m and b_m, scales, relative bias."""
    dim, z_dim = arrays["x"].shape[2], golden["zdim"]
    kept = {key: value for key, value in arrays.items() if key not in ("qk_gamma", "qk_beta", "rel_bias")}
    return kept | {key: torch.cat([arrays[key][:dim], arrays[key][dim + z_dim :]]) for key in ("w_m", "b_m")}


def weights(arrays: Arrays, layer: MegaBlock) -> Arrays:
    """The arrays of a file under our names and in our shapes. A bias that the file does not have is zero."""
    names = {f"{kind}_{theirs}": f"{ours}.{full}" for theirs, ours in LINEAR.items() for kind, full in KINDS.items()}
    names |= {f"norm{i}_{key}": f"norm{i or 1}.{ours}" for i in ("", 2) for key, ours in NORM.items()}
    names |= {f"ema_{key}": f"ema.{key}" for key in EMA}
    names |= {"qk_gamma": "qk_scale", "qk_beta": "qk_shift", "rel_bias": "attention.relative_bias"}
    own = layer.state_dict()
    found = {ours: arrays[theirs].reshape(own[ours].shape) for theirs, ours in names.items() if theirs in arrays}
    absent = {key: value.zero_() for key, value in own.items() if key.endswith(("num_batches_tracked", ".bias"))}
    return absent | found


def check_ema(golden: dict[str, Any], arrays: Arrays) -> None:
    x = arrays["x"].clone().requires_grad_()
    ema = DampedEMA(x.shape[2], golden["ndim"], bidirectional=golden["bidirectional"], truncation=golden["truncation"])
    ema.load_state_dict({key: arrays[f"ema_{key}"] for key in EMA})
    mask = arrays.get("mask", torch.ones(x.shape[:2], dtype=torch.bool))
    y = ema(x, padding_of(arrays))
    (dx,) = torch.autograd.grad(y, x, arrays["g"])
    assert_close(ema.kernel(arrays["kernel"].shape[1]), arrays["kernel"], rtol=0, atol=1e-5)
    assert_close(y[mask], arrays["y"][mask], rtol=0, atol=1e-5)
    assert_close(dx, arrays["dx"], rtol=1e-4, atol=1e-5)


def check_layer(golden: dict[str, Any], arrays: Arrays) -> None:
    x, layer = arrays["x"].clone().requires_grad_(), build(golden, arrays)
    mask = arrays.get("mask", torch.ones(x.shape[:2], dtype=torch.bool))
    seen: Arrays = {}
    layer.ema.register_forward_hook(lambda _, __, out: seen.update(ema_out=out))
    layer.attention.value.register_forward_hook(lambda _, __, v: seen.update(v=v))
    layer.attention.out.register_forward_pre_hook(lambda _, inputs: seen.update(perm=inputs[0]))
    after_gates = layer.norm2 if golden["prenorm"] else layer.mlp  # what reads them
    after_gates.register_forward_pre_hook(lambda _, inputs: seen.update(gated_out=inputs[0]))
    y = layer(x, BlockInputs(padding_of(arrays)))
    (dx,) = torch.autograd.grad(y, x, arrays["g"])
    compared = {"gated_out": y} | {key: array for key, array in seen.items() if key in arrays} | {"y": y}
    for key, ours in compared.items():
        assert_close(ours[mask], arrays[key][mask], rtol=0, atol=1e-5, msg=lambda text, key=key: f"{key}: {text}")
    assert_close(dx, arrays["dx"], rtol=1e-4, atol=1e-5)


def test_every_operation_has_a_committed_file() -> None:
    assert operations("mega") == {"ema", "mega_layer"}


@pytest.mark.parametrize("name", file_names("mega"))
def test_equals_golden_vectors(name: str) -> None:
    golden, arrays = load(name)
    check = check_ema if golden["op"] == "ema" else check_layer
    check(golden, arrays)
