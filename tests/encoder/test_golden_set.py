"""The Set Transformer's block and pooling against golden vectors, the block through its YAML."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.golden_files import Arrays, file_names, load, padding_of
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.testing import assert_close

from sliceformer_lab.attention import LayerSpec
from sliceformer_lab.attention.mha import MHA
from sliceformer_lab.config.compose import load_option
from sliceformer_lab.config.schema import construct
from sliceformer_lab.encoder.encoder_options import EncoderOptions
from sliceformer_lab.encoder.set_block import MAB, PMA

FILES = file_names("set__")
PARTS = {"q": "query", "k": "key", "v": "value", "o": "out", "ln0": "norm1", "ln1": "norm2"}
KINDS = {"w": "weight", "b": "bias"}
SIZES = ("inducing", "seeds", "context")  # the array whose rows `num_inducing_or_seeds` counts
SAID_ELSEWHERE = ("family", "source", "op", "heads", "scale", "layer_norm", "num_inducing_or_seeds")

Layer = Callable[..., Tensor]


def our_name(theirs: str) -> str:
    """`w_q` -> query.weight, `ln0_b` -> norm1.bias."""
    kind, part = sorted(theirs.split("_"), key=lambda word: word not in KINDS)
    return f"{PARTS[part]}.{KINDS[kind]}"


def mab_weights(arrays: Arrays, width: int, prefix: str = "") -> Arrays:
    """The weights of one MAB under our names, with zeros for the channels that narrower tokens do not have."""
    cut = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
    theirs = {key: array for key, array in cut.items() if set(key.split("_")) & set(PARTS)}
    return {our_name(key): widened(array, width) for key, array in theirs.items()}


def widened(array: Tensor, width: int) -> Tensor:
    return pad(array, (0, width - array.shape[-1]))


def build_mab(spec: LayerSpec, layer_norm: bool, arrays: Arrays) -> nn.Module:
    mab = MAB(spec, MHA(spec), layer_norm=layer_norm)
    mab.load_state_dict(mab_weights(arrays, spec.dim))
    return mab


def build_pma(spec: LayerSpec, layer_norm: bool, arrays: Arrays) -> nn.Module:
    pma = PMA(spec, num_seeds=arrays["seeds"].shape[1], layer_norm=layer_norm)
    pma.seeds.data.copy_(arrays["seeds"])
    pma.mab.load_state_dict(mab_weights(arrays, spec.dim))
    return pma


def build_block(spec: LayerSpec, layer_norm: bool, arrays: Arrays) -> Any:
    """`block=set attention=mha`, with learned points if the file has any."""
    points = arrays.get("inducing")
    inducing = None if points is None else points.shape[1]
    options = EncoderOptions(dim=spec.dim, depth=1, num_heads=spec.num_heads, mlp_dim=1, position="none")
    node = load_option("block", "set") | {"inducing": inducing, "layer_norm": layer_norm}
    block = construct(node, spec, MHA(spec), options, where="block")
    if points is None:
        block.mab.load_state_dict(mab_weights(arrays, spec.dim))
    else:
        block.points.seeds.data.copy_(points)
        block.points.mab.load_state_dict(mab_weights(arrays, spec.dim, "mab0_"))
        block.mab.load_state_dict(mab_weights(arrays, spec.dim, "mab1_"))
    return block


BUILDERS = {"mab": build_mab, "sab": build_block, "isab": build_block, "pma": build_pma}


def build(golden: dict[str, Any], arrays: Arrays) -> nn.Module:
    """Our layer of a file; fails for an option or value that it does not know."""
    assert not set(golden) - set(SAID_ELSEWHERE)
    assert golden["scale"] == "1/sqrt(dim_V) with the full width, not the head width"
    assert golden["num_inducing_or_seeds"] == next((arrays[key].shape[1] for key in SIZES if key in arrays), None)
    spec = LayerSpec(dim=arrays["y"].shape[2], num_heads=golden["heads"], project=False)
    return BUILDERS[golden["op"]](spec, golden["layer_norm"], arrays).eval()


def test_golden_files_are_there() -> None:
    assert {load(name)[0]["op"] for name in FILES} == set(BUILDERS)


@pytest.mark.parametrize("surprise", [{"ln_eps": 1e-6}, {"scale": "1/sqrt(head_dim)"}, {"op": "swd"}], ids=str)
def test_an_unknown_option_fails(surprise: dict[str, Any]) -> None:
    golden, arrays = load("set__sab")
    with pytest.raises((AssertionError, KeyError)):
        build(golden | surprise, arrays)


@pytest.mark.parametrize("name", FILES)
def test_equals_golden_vectors(name: str) -> None:
    golden, arrays = load(name)
    width, padding = arrays["y"].shape[2], padding_of(arrays)
    tokens = [key for key in ("x", "context") if key in arrays]
    inputs = [arrays[key].clone().requires_grad_() for key in tokens]
    y = build(golden, arrays)(*(widened(tensor, width) for tensor in inputs), padding=padding)
    real = torch.ones(y.shape[:2], dtype=torch.bool) if padding is None else padding.mask
    assert_close(y[real], arrays["y"][real], rtol=0, atol=1e-5)
    for key, gradient in zip(tokens, torch.autograd.grad(y, inputs, arrays["g"]), strict=True):
        assert_close(gradient, arrays[f"d{key}"], rtol=1e-4, atol=1e-5)
