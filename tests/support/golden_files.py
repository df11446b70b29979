"""Golden files: finding and reading them, and checking an attention against one of the families `peers` and `newer`.

The options in a file say what it holds, its name and its sizes do not. A test file that compares attentions holds a
table `PEERS` of what they are called here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from sliceformer_lab.attention import Attention, LayerSpec, build_layer
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.compose import load_option

FOLDER = Path(__file__).parents[1] / "golden"
SAID_ELSEWHERE = ("family", "op", "heads", "layer", "bias_qkv", "scale", "source", "grid", "num_prefix")
PROJECTIONS = {"q": "query", "k": "key", "v": "value", "o": "out"}
KINDS = {"w": "weight", "b": "bias"}

Options = dict[str, Any]
Arrays = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Peer:
    """What an operation of a golden family is called here; names that are ours too are left out."""

    attention: str  # option of conf/attention
    options: Mapping[str, str] = field(default_factory=dict)  # golden option -> ours, or a size of the layer
    values: Mapping[str, Any] = field(default_factory=dict)  # golden value -> ours
    fixed: Mapping[str, Any] = field(default_factory=dict)  # golden options of which we have only this value
    weights: Mapping[str, str] = field(default_factory=dict)  # golden array -> parameter, beside q, k, v and o; or the
    # parameters, separated by spaces, whose rows it stacks
    sizes: Mapping[str, tuple[str, int]] = field(default_factory=dict)  # golden array -> our option, axis it counts
    layouts: Mapping[str, Callable[[Tensor], Tensor]] = field(default_factory=dict)  # golden array -> as we lay it out
    gradient_atol: float = 1e-5  # 5e-5 where the golden README allows it
    gradient_rtol: float = 1e-4  # 1e-3 where the golden README allows it


@cache
def options_of(path: Path) -> Options:
    """The options of a golden file."""
    with np.load(path) as file:
        return dict(json.loads(str(file["options"])))


def file_names(family: str, *operations: str) -> list[str]:
    """Names of the golden files of a family, or of some of its operations."""
    found = {path.stem: options_of(path) for path in sorted(FOLDER.glob("*.npz"))}
    return [
        name
        for name, golden in found.items()
        if golden["family"] == family and (not operations or golden["op"] in operations)
    ]


def operations(family: str) -> set[str]:
    """The operations that the golden files of a family have."""
    return {options_of(FOLDER / f"{name}.npz")["op"] for name in file_names(family)}


def load(name: str) -> tuple[Options, Arrays]:
    """The options and arrays of a golden file. Integers of any size become int64, texts join the options."""
    arrays: Arrays = {}
    texts: Options = {}
    with np.load(FOLDER / f"{name}.npz") as file:
        for key in file.files:
            if file[key].dtype.kind == "U":
                texts[key] = json.loads(str(file[key]))
            else:
                array = torch.from_numpy(file[key])
                is_integer = not array.is_floating_point() and array.dtype != torch.bool
                arrays[key] = array.long() if is_integer else array
    return texts.pop("options") | texts, arrays


def numbered(arrays: Arrays, letter: str) -> list[Arrays]:
    """The arrays `m0_x`, `m1_x`, ... of a file: one mapping for each number, without the prefix."""
    found: dict[int, Arrays] = {}
    for key, array in arrays.items():
        if match := re.fullmatch(rf"{letter}(\d+)_(\w+)", key):
            found.setdefault(int(match[1]), {})[match[2]] = array
    return [arrays for _, arrays in sorted(found.items())]


def padding_of(arrays: Arrays) -> Padding | None:
    return Padding(arrays["mask"].sum(1), arrays["mask"]) if "mask" in arrays else None


def fill(layer: nn.Module, weight: Tensor, bias: Tensor | None) -> None:
    """Give a linear layer or a norm the weights of a file, of any width and with no bias if the file has none."""
    layer.weight = nn.Parameter(weight)
    layer.bias = None if bias is None else nn.Parameter(bias)


def peer_options(golden: Options, peer: Peer) -> Options:
    """The options of a peer file under our names; building the attention refuses those that it does not have."""
    left = {key: value for key, value in golden.items() if key not in SAID_ELSEWHERE or key in peer.options}
    for key, only in peer.fixed.items():
        assert left.pop(key, only) == only, f"{golden['op']} has only {key}={only} here"
    return {peer.options.get(key, key): peer.values.get(str(value), value) for key, value in left.items()}


def peer_layer(golden: Options, arrays: Arrays, peer: Peer) -> Attention:
    """Our attention with the options and weights of a peer file. A bias that the file does not have is zero."""
    options = peer_options(golden, peer)
    options |= {ours: arrays[key].shape[axis] for key, (ours, axis) in peer.sizes.items() if key in arrays}
    spec = LayerSpec(
        dim=arrays["x"].shape[2],
        num_heads=golden["heads"],
        head_dim=arrays["w_v"].shape[0] // golden["heads"] if "w_v" in arrays else None,
        max_len=options.pop("max_len", arrays["x"].shape[1]),
        index=(index := options.pop("index", 0)),
        depth=index + 1,
        grid=tuple(grid) if (grid := golden.get("grid")) else None,
        num_prefix=golden.get("num_prefix", 0),
        value_bias=bool({"b_v", "b_q", "b_k", "b_qk", "b_in"} & set(arrays)),
        out_bias="b_o" in arrays,
    )
    layer = build_layer(load_option("attention", peer.attention) | options, spec).eval()
    names = {f"{k}_{p}": f"{ours}.{kind}" for k, kind in KINDS.items() for p, ours in PROJECTIONS.items()}
    arrays = arrays | {key: layout(arrays[key]) for key, layout in peer.layouts.items()}
    own, computed = layer.state_dict(), dict(layer.named_buffers())
    names |= {key: key for key in arrays if key in own or key in computed} | dict(peer.weights)
    found = {}
    for key, ours in names.items():
        if key in arrays:
            stacked = ours.split()
            rows = [len(arrays[key])] if len(stacked) == 1 else [len(own[part]) for part in stacked]
            found |= dict(zip(stacked, arrays[key].split(rows), strict=True))
    for name in set(found) & (set(computed) - set(own)):  # those that are in no state
        computed[name].copy_(found.pop(name))
    zeros = {ours: torch.zeros_like(weight) for ours, weight in own.items() if ours.endswith("bias")}
    layer.load_state_dict(zeros | {ours: array.reshape(own[ours].shape) for ours, array in found.items()})
    return layer


def cases(arrays: Arrays) -> Iterator[tuple[str, Padding | None]]:
    """The comparisons of a peer file: without padding, and with padding if it has a mask."""
    yield "", None
    if "mask" in arrays:
        yield "_masked", padding_of(arrays)


def check_peer(name: str, peers: Mapping[str, Peer], operation: str) -> None:
    """Output and gradient of our attention equal those of the file, without and with padding."""
    golden, arrays = load(name)
    peer = peers[operation]
    layer = peer_layer(golden, arrays, peer)
    for suffix, padding in cases(arrays):
        x = arrays["x"].clone().requires_grad_()
        y = layer(x, padding)
        real = torch.ones(x.shape[:2], dtype=torch.bool) if padding is None else padding.mask
        (dx,) = torch.autograd.grad(y, x, arrays[f"g{suffix}"])
        assert_close(y[real], arrays[f"y{suffix}"][real], rtol=0, atol=1e-5)
        assert_close(dx, arrays[f"dx{suffix}"], rtol=peer.gradient_rtol, atol=peer.gradient_atol)
