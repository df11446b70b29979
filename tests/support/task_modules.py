"""A small data module for every task, on miniature files in its official format, for tests that go over all tasks."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple, cast

from support import official_files, official_graphs, official_points, series_files
from support.plans import prepared

from sliceformer_lab.config.compose import preset_root
from sliceformer_lab.config.schema import build_object
from sliceformer_lab.data.base import DataModule
from sliceformer_lab.data.probes.generators import PROBES
from sliceformer_lab.data.spec import LoadPlan


class Small(NamedTuple):
    """What writes a task's files into a folder, if it reads any, and the options that keep it small."""

    write: Callable[[Path], object] | None
    options: dict[str, Any]


# A task that is missing here fails the tests: add its line.
SMALL = {
    "digits": Small(None, {}),
    **{name: Small(write, {"image_size": 32}) for name, write in official_files.IMAGE_SETS.items()},
    "imdb": Small(official_files.aclimdb, {"max_len": 60, "vocab_size": 300}),
    "lra_text": Small(official_files.aclimdb, {"max_len": 100}),
    "lra_listops": Small(
        None, {"min_len": 5, "max_len": 40, "num_train": 60, "num_val": 10, "num_test": 10, "processes": 1}
    ),
    "lra_image": Small(official_files.cifar10, {"max_len": 64}),
    "lra_pathfinder": Small(None, {"difficulty": "easy", "num_examples": 60, "max_len": 64, "processes": 1}),
    "lra_pathx": Small(
        None,
        {"difficulty": "easy", "num_examples": 30, "num_distractors": 2, "max_len": 64, "processes": 1},
    ),
    "lra_retrieval": Small(official_files.aan_pairs, {"max_len": 100}),
    "qm9_gap": Small(official_graphs.qm9, {"processes": 1}),
    "pcqm4m": Small(official_graphs.pcqm4m, {"processes": 1}),
    "zinc": Small(official_graphs.zinc, {}),
    "molecule_csv": Small(official_graphs.molecules, {"file": "molecules.csv", "processes": 1}),
    "pyg": Small(official_graphs.mutag, {}),
    "torchvision": Small(official_files.fashion_mnist, {}),
    "modelnet40": Small(official_points.modelnet40, {"num_points": 16, "processes": 1}),
    "shapenet_part": Small(official_points.shapenet_part, {"num_points": 16, "processes": 1}),
    "point_folder": Small(official_points.point_folder, {"num_points": 16, "processes": 1}),
    "image_csv": Small(official_files.image_table, {"file": "images.csv"}),
    "mask_folder": Small(official_files.mask_folder, {"processes": 1}),
    "peptides_func": Small(official_graphs.peptides, {"processes": 1}),
    "peptides_struct": Small(official_graphs.peptides, {"processes": 1}),
    **{f"probe_{name}": Small(None, {"level": "easy"}) for name in PROBES},
    "text_lm": Small(official_files.book, {"file": "book.txt", "max_len": 16}),
    "series_csv": Small(series_files.ucr, {"file": "series.txt"}),
    "series_folder": Small(series_files.arrays, {"processes": 1}),
    "text_csv": Small(official_files.texts, {"file": "texts.csv", "max_len": 48, "vocab_size": 300}),
}


def data_node(task: str) -> dict[str, Any]:
    """The options of a task's data as its file says them, composed once; they are not to be changed."""
    return dict(preset_root(f"task={task}")["data"])


EVERYWHERE = {"download": False, "verify": False, "num_workers": 0}


def module(task: str, root: Path, plan: LoadPlan | None = None, **options: Any) -> DataModule:
    """The data module of a task, not set up, for files in `root`, whose checksums are not the official ones."""
    small = SMALL[task].options
    places = {"root": str(root), "cache": str(root.with_name(f"{root.name}_cache"))} | (
        {"file": str(root / small["file"])} if "file" in small else {}
    )
    node = deepcopy(data_node(task))
    wanted = EVERYWHERE | small | options | places
    known = {key: value for key, value in wanted.items() if key in node}
    return cast(DataModule, build_object(node | known, *([plan] if plan else []), where="data"))


def ready(task: str, root: Path, plan: LoadPlan | None = None, **options: Any) -> DataModule:
    """The data module of a task, set up on freshly written files in `root`."""
    if (write := SMALL[task].write) is not None and not any(root.iterdir()):
        write(root)
    return prepared(module(task, root, plan, **options))
