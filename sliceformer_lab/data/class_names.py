"""Classes: their names, and files in class folders (root/CLASS, or root/train/CLASS with root/val and root/test)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from sliceformer_lab.data.splits import STAGES, Stage
from sliceformer_lab.data.table_files import STAGE_NAMES
from sliceformer_lab.errors import DataError

NOTES_OF_SYSTEMS = ("__macosx", "thumbs.db", "desktop.ini")
ClassFiles = list[tuple[Path, int]]  # each file, and the number of its class


def class_names(folder: Path) -> list[str]:
    """The sorted names of the sub-folders of a folder but hidden ones. Raises DataError if there is none."""
    if folder.is_dir():
        names = sorted(p.name for p in folder.iterdir() if p.is_dir() and not is_of_system(p.name))
        if names:
            return names
    raise DataError(f"{folder} holds no class folders; put one folder per class there")


def stage_folders(root: Path) -> dict[Stage, Path]:
    """The folder of each split in `root`, such as root/train and root/valid; without one to train on, `root` trains.

    Their names are the words of a split column. Raises DataError for two folders of one split.
    """
    found: dict[Stage, Path] = {}
    for path in sorted(root.iterdir()) if root.is_dir() else ():
        stage = STAGE_NAMES.get(path.name.lower()) if path.is_dir() else None
        if stage in found:
            raise DataError(f"{found[stage]} and {path} are both folders of the {stage} split; keep one")
        if stage is not None:
            found[stage] = path
    return {stage: found[stage] for stage in STAGES if stage in found} if "train" in found else {"train": root}


def labelled_files(
    folder: Path, classes: Sequence[str], endings: Collection[str], kind: str, inner: str = ""
) -> ClassFiles:
    """The files in folder/CLASS/inner but hidden ones, labelled by the position of CLASS in `classes`.

    Raises DataError naming a folder without files, or a class that is not in `classes`.
    """
    found: ClassFiles = []
    for name in class_names(folder):
        if name not in classes:
            raise DataError(f"{folder / name} is a class without training {kind}; add some or delete the folder")
        inside = folder / name / inner
        files = list_files(inside, endings)
        if not files:
            raise DataError(f"{inside} holds no {kind} ({', '.join(sorted(endings))}); fill it or delete it")
        found += [(path, classes.index(name)) for path in files]
    return found


def list_files(folder: Path, endings: Collection[str]) -> list[Path]:
    """The files of a folder with one of these endings, sorted; hidden ones and notes of the system aside."""
    return [p for p in sorted(folder.glob("*")) if p.suffix.lower() in endings and not is_of_system(p.name)]


def is_of_system(name: str) -> bool:
    """Whether a file or folder is hidden, or a note that a system keeps."""
    return name.startswith(".") or name.lower() in NOTES_OF_SYSTEMS


def class_names_of(examples: Sequence[tuple[Stage, str, str]], contents: str) -> list[str]:
    """The classes of the training examples, sorted as numbers if all are numbers, from (split, place, class) of each.

    `contents` is what the examples are, for messages. Raises DataError for a single class, or for a class without
    training examples.
    """
    training = [(place, name) for stage, place, name in examples if stage == "train"]
    names = {name for _, name in training}
    if len(names) < 2:
        raise DataError(
            f"{training[0][0]} and all other training {contents} have the class {min(names)!r}; "
            "at least two classes are needed"
        )
    for stage, place, name in examples:
        if name not in names:
            raise DataError(
                f"{place} has the class {name!r}, which only the {stage} split has; "
                f"add training {contents} of this class or delete the {contents.removesuffix('s')}"
            )
    as_numbers = all(name.removeprefix("-").isdecimal() for name in names)
    return sorted(names, key=lambda name: (int(name), name)) if as_numbers else sorted(names)


def number_classes(examples: Sequence[tuple[Stage, str, str]], contents: str) -> tuple[list[str], np.ndarray]:
    """The classes as `class_names_of` finds them, and the number (n,) int64 of the class of each example."""
    classes = class_names_of(examples, contents)
    numbers = {name: number for number, name in enumerate(classes)}
    return classes, np.array([numbers[name] for *_, name in examples])
