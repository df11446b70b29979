"""The Set Transformer's block and pooling against golden vectors, the block through its YAML."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.golden_files import PROJECTIONS, Arrays, file_names, fill, load, operations, padding_of
from torch import nn
from torch.testing import assert_close

from sliceformer_lab.attention import LayerSpec
from sliceformer_lab.attention.base import BlockInputs
from sliceformer_lab.attention.mha import MHA
from sliceformer_lab.config.compose import load_option
from sliceformer_lab.config.schema import build_object
from sliceformer_lab.encoder.encoder_options import EncoderOptions
from sliceformer_lab.encoder.set_block import MAB, PMA, SetBlock

KNOWN = {"family", "source", "op", "heads", "scale", "layer_norm", "num_inducing_or_seeds"}


def load_mab(mab: nn.Module, arrays: Arrays, prefix: str = "") -> None:
    """The weights of one MAB, which may read tokens of another width."""
    for theirs, ours in PROJECTIONS.items():
        fill(mab.get_submodule(ours), arrays[f"{prefix}w_{theirs}"], arrays.get(f"{prefix}b_{theirs}"))
    for i in (0, 1):
        if f"{prefix}ln{i}_w" in arrays:
            fill(mab.get_submodule(f"norm{i + 1}"), arrays[f"{prefix}ln{i}_w"], arrays.get(f"{prefix}ln{i}_b"))


def build_mab(spec: LayerSpec, layer_norm: bool, arrays: Arrays) -> nn.Module:
    mab = MAB(spec, MHA(spec), layer_norm=layer_norm)
    load_mab(mab, arrays)
    return mab


def build_pma(spec: LayerSpec, layer_norm: bool, arrays: Arrays) -> nn.Module:
    pma = PMA(spec, num_seeds=arrays["seeds"].shape[1], layer_norm=layer_norm)
    pma.seeds.data.copy_(arrays["seeds"])
    load_mab(pma.mab, arrays)
    return pma


def build_block(spec: LayerSpec, layer_norm: bool, arrays: Arrays) -> Any:
    """`block=set attention=mha`, with learned points if the file has any."""
    points = arrays.get("inducing")
    inducing = None if points is None else points.shape[1]
    options = EncoderOptions(dim=spec.dim, depth=1, num_heads=spec.num_heads, mlp_dim=1, position="none")
    node = load_option("block", "set") | {"inducing": inducing, "layer_norm": layer_norm}
    block = build_object(node, spec, MHA(spec), options, where="block")
    if points is not None:
        block.points.seeds.data.copy_(points)
        load_mab(block.points.mab, arrays, "mab0_")
    load_mab(block.mab, arrays, "" if points is None else "mab1_")
    return block


BUILDERS = {"mab": build_mab, "sab": build_block, "isab": build_block, "pma": build_pma}


def build(golden: dict[str, Any], arrays: Arrays) -> nn.Module:
    """Our layer of a file; fails for an option or operation that it does not know."""
    assert set(golden) <= KNOWN, f"no translation for {set(golden) - KNOWN}"
    spec = LayerSpec(dim=arrays["y"].shape[2], num_heads=golden["heads"], project=False)
    return BUILDERS[golden["op"]](spec, golden["layer_norm"], arrays).eval()


def test_every_operation_has_a_committed_file() -> None:
    assert operations("set_transformer") == set(BUILDERS)


@pytest.mark.parametrize("name", file_names("set_transformer"))
def test_equals_golden_vectors(name: str) -> None:
    golden, arrays = load(name)
    tokens = [key for key in ("x", "context") if key in arrays]
    inputs = [arrays[key].clone().requires_grad_() for key in tokens]
    layer, padding = build(golden, arrays), padding_of(arrays)
    y = layer(*inputs, BlockInputs(padding)) if isinstance(layer, SetBlock) else layer(*inputs, padding=padding)
    real = torch.ones(y.shape[:2], dtype=torch.bool)
    if golden["op"] in ("sab", "isab"):  # where the mask, which is that of the keys, is that of the output too
        real = arrays.get("mask", real)
    assert_close(y[real], arrays["y"][real], rtol=0, atol=1e-5)
    for key, gradient in zip(tokens, torch.autograd.grad(y, inputs, arrays["g"]), strict=True):
        assert_close(gradient, arrays[f"d{key}"], rtol=1e-4, atol=1e-5)
