"""What the plain values of a configuration show: numbers without meaning, sizes without memory, files that are missing.

These checks need no class, so that they come before torch is imported.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any

from sliceformer_lab.config.schema import MODEL_NODES, nearest

MAX_INTEGER = 2**63  # beyond it, no integer has a place in a tensor
GB = 1e9
COPIES_OF_A_WEIGHT = 4  # of each weight in training: itself, its gradient and two moments
FLOAT_BYTES = 4  # bytes
FILES = ("data.file", "data.val_file", "data.test_file", "encoder.init_file")
WEIGHTS = ("encoder.init_file", "pretrain.path")  # of another training, which a new run starts from
FOLDER_NAMES = ("image_folder", "mask_folder", "point_folder", "series_folder")  # of data.root if it is not set
LENGTHS = ("steps", "warmup_steps")
FOLDERS = {  # of the user's own data: class -> option
    "sliceformer_lab.data.images.folders.ImageFolder": "root",
    "sliceformer_lab.data.images.mask_folder.MaskFolder": "root",
    "sliceformer_lab.data.points.point_folder.PointFolder": "root",
    "sliceformer_lab.data.series.series_folder.SeriesFolder": "root",
}


def number_faults(config: Mapping[str, Any]) -> list[str]:
    """A sentence for each number that is infinite, NaN, or too large for a tensor."""
    faults = []
    for place, value in values_by_place(config):
        if isinstance(value, float) and not math.isfinite(value):
            faults.append(f"{place}: given {value}, should be a finite number")
        elif isinstance(value, int) and abs(value) >= MAX_INTEGER:
            faults.append(
                f"{place}: given {value:.3g}, should be less than 2^63"
                if abs(value) < 10**300
                else f"{place}: given a number of {len(str(value))} digits, should be less than 2^63"
            )
    return faults


def node_faults(config: Mapping[str, Any]) -> list[str]:
    """A sentence for each node of a run that the command line has deleted, as ~encoder does, or replaced by a value."""
    return [
        f"{name}: given {config[name]!r}, should be options with a _target_"
        if name in config
        else f"{name}: a value is needed"
        for name in ("data", "task", "trainer", *MODEL_NODES)
        if not isinstance(config.get(name), Mapping)
    ]


def new_run_faults(config: Mapping[str, Any], given: Container[str]) -> list[str]:
    """A sentence for each option with which a new run would make no sense; `given` holds the keys of the command line.

    A warm-up is only refused if the command line sets its length: the published recipe of lra_retrieval ends within it.
    """
    warmup = _long_warmup(config["optim"]) if any(f"optim.{key}" in given for key in LENGTHS) else ()
    paths = {f"paths.{name}": path for name, path in config["paths"].items()}
    faults = (_long_pattern(config), _uneven_heads(config["encoder"]), written_data(config, paths))
    return [*size_faults(config), *warmup, *itertools.chain(*faults)]


def written_data(config: Mapping[str, Any], places: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each folder of data that holds one of `places`, by option: what runs write there changes data."""
    read = {place: Path(path).expanduser() for place, path in own_paths(config).items()}
    folders = {place: path for place, path in read.items() if place not in (*FILES, *WEIGHTS)}
    written = {option: path for option, path in places.items() if isinstance(path, str)}
    for (place, folder), (option, path) in itertools.product(folders.items(), written.items()):
        if Path(path).expanduser().resolve().is_relative_to(folder.resolve()):
            yield f"{place}: {folder} holds {option}={path}, where runs write; give {option} another folder"


def _uneven_heads(encoder: Mapping[str, Any]) -> Iterator[str]:
    dim, heads = _whole_number(encoder, "dim"), _whole_number(encoder, "num_heads")
    if dim == encoder.get("dim") and dim % heads and encoder.get("head_dim") is None:
        even = [number for number in range(1, dim + 1) if dim % number == 0]
        near = [max(n for n in even if n < heads), *[n for n in even if n > heads][:1]]
        yield f"encoder: num_heads={heads} does not divide dim={dim}; try num_heads={' or '.join(map(str, near))}"


def _long_warmup(optim: Mapping[str, Any]) -> Iterator[str]:
    steps, warmup = _whole_number(optim, "steps"), _whole_number(optim, "warmup_steps")
    if 1 < steps <= warmup and optim.get("max_steps") is None:  # which limits the warm-up
        yield f"optim.warmup_steps={warmup} takes all of optim.steps={steps}; try optim.warmup_steps={steps // 20}"


def _long_pattern(config: Mapping[str, Any]) -> Iterator[str]:
    pattern, depth = config["attention"].get("pattern"), _whole_number(config["encoder"], "depth")
    if isinstance(pattern, list) and len(pattern) > depth:
        yield (
            f"attention.pattern: names {len(pattern)} attentions, but encoder.depth={depth}; "
            "shorten one or raise the other"
        )


def size_faults(config: Mapping[str, Any]) -> list[str]:
    """A sentence for each size that alone needs more than the memory of this machine.

    The estimates are lower bounds: what they refuse cannot run, what they let pass may still not fit.
    """
    available, data = physical_memory(), config.get("data")
    dim, depth, mlp = (_whole_number(config.get("encoder"), name) for name in ("dim", "depth", "mlp_dim"))
    weights = depth * dim * (dim + 2 * mlp)
    batch = max(_whole_number(data, "batch_size"), _whole_number(data, "eval_batch_size"))
    pixels, tokens, points, words = (
        _whole_number(data, n) for n in ("image_size", "max_len", "num_points", "vocab_size")
    )
    needs = {
        f"encoder.depth={depth:,}, encoder.dim={dim:,} and encoder.mlp_dim={mlp:,}": COPIES_OF_A_WEIGHT * weights,
        f"data.batch_size={batch:,}": batch * dim,
        f"data.image_size={pixels:,}": pixels**2,
        f"data.max_len={tokens:,}": tokens * dim,
        f"data.num_points={points:,}": points * dim,
        f"data.vocab_size={words:,}": words,
    }
    return [
        f"{options}: needs at least {FLOAT_BYTES * numbers / GB:,.0f} GB, and this machine has {available / GB:,.0f} GB"
        for options, numbers in needs.items()
        if FLOAT_BYTES * numbers > available
    ]


def empty_epochs(config: Mapping[str, Any]) -> list[str]:
    """A sentence for each limit that leaves no batch."""
    limits = {place: value_at(config, place) for place in ("trainer.limit_train_batches", "trainer.limit_val_batches")}
    return [
        f"{place}: given {limit}, which leaves no batch; null uses all"
        for place, limit in limits.items()
        if limit is not None and not limit
    ]


def missing_files(config: Mapping[str, Any]) -> list[str]:
    """A sentence for each file or folder of the user that a run reads and that is not there.

    A resumed run has its weights.
    """
    faults = []
    for place, name in own_paths(config).items():
        if place in WEIGHTS and config.get("resume"):
            continue
        path = Path(name).expanduser()
        is_bert = place == "encoder.init_file" and value_at(config, "encoder.init") == "bert"
        is_folder = is_bert or place not in FILES
        if is_folder and not path.is_dir():
            faults.append(f"{place}: {name} {'is a file' if path.is_file() else _not_there(path, place)}")
        elif not is_folder and not path.is_file():
            faults.append(f"{place}: {name} {'is a folder' if path.is_dir() else _not_there(path, place)}")
    return faults


def own_paths(config: Mapping[str, Any]) -> dict[str, str]:
    """The user's own data, tokenizer and pretrained weights that the configuration names, by their places in it."""
    folder = FOLDERS.get(str(value_at(config, "data._target_")), "")
    places = dict.fromkeys((*FILES, *WEIGHTS, "data.tokenizer_folder", f"data.{folder}"))
    found = {place: value_at(config, place) for place in places}
    return {place: path for place, path in found.items() if isinstance(path, str)}


def physical_memory() -> int:
    """The bytes of memory of this machine; without a limit where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return MAX_INTEGER


def _not_there(path: Path, place: str) -> str:
    """That a file or folder is missing, and what lies there with nearly that name, or else the option to set."""
    is_file = place in FILES
    try:
        close = nearest(path.name, sorted(one.name for one in path.parent.iterdir() if one.is_file() == is_file))
    except OSError:
        close = ""
    if "did you mean" in close and path.name not in FOLDER_NAMES:
        return f"does not exist{close}"
    own = f"; set {place} to {'a file' if is_file else 'a folder'} of yours"
    return f"does not exist{own if place.startswith('data.') else ''}"


def value_at(config: Mapping[str, Any], place: str) -> Any:
    """The value at a place such as trainer.devices; None if there is no such place."""
    node: Any = config
    for key in place.split("."):
        node = node.get(key) if isinstance(node, Mapping) else None
    return node


def _whole_number(node: object, key: str) -> int:
    """A positive whole number of a node; 1 where there is none."""
    value = node.get(key) if isinstance(node, Mapping) else None
    return value if isinstance(value, int) and value > 0 else 1


def values_by_place(node: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that is no mapping or list, after its place such as data.batch_size."""
    items = node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list | tuple) else None
    if items is None:
        yield place, node
    else:
        for key, value in items:
            yield from values_by_place(value, f"{place}.{key}" if place else str(key))
