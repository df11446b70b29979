"""Predictions as rows that a person can read: names of classes and targets, and where each example comes from."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.errors import RunFolderError
from sliceformer_lab.runs.files import whole_file, write_json
from sliceformer_lab.runs.folder import write_predictions
from sliceformer_lab.runs.plain_text import csv_cell
from sliceformer_lab.training.interfaces import DataModule, TaskModule

PREPROCESSING, TABLE = "preprocessing.json", "predictions.csv"
MOST_ROWS = 100_000  # of each split in predictions.csv; predictions.npz has all
MOST_CLASSES = 100  # with a column of probabilities each; with more classes, only the predicted one has it
MOST_CHARACTERS = 1_000  # of a text in predictions.csv
CHUNK = 1_000  # examples that are read at once

Row = dict[str, Any]


@dataclass(frozen=True)
class Names:
    """What the outputs of a model are called: one class for each number, or one target for each column."""

    classes: tuple[str, ...]
    targets: tuple[str, ...]


def names_of(data: DataModule) -> Names:
    """The names of a data set. Classes without a name have their number."""
    known, count = data.class_names(), data.spec.num_classes
    return Names((*known, *map(str, range(len(known), count))), data.target_names())


def save_preprocessing(folder: Path, data: DataModule) -> None:
    """Writes into a run folder what predicting new inputs needs besides configuration and checkpoint."""
    data.save_encoder(folder)
    write_json(folder / PREPROCESSING, {"data": asdict(data.spec), **asdict(names_of(data))})


def read_preprocessing(folder: Path) -> tuple[DataSpec, Names] | None:
    """The sizes of the data and the names of the outputs; None before the run has ended."""
    try:
        content = json.loads((folder / PREPROCESSING).read_text(encoding="utf-8"))
        return DataSpec.from_json(content["data"]), Names(tuple(content["classes"]), tuple(content["targets"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(f"{folder / PREPROCESSING} cannot be read ({error!r})") from error


def trained_classes(folder: Path) -> tuple[str, ...]:
    """The classes that a run was trained on, in the order of its outputs; () if it has recorded none."""
    saved = read_preprocessing(folder)
    return () if saved is None else saved[1].classes


def has_rows(task: TaskModule, outputs: Tensor, names: Names) -> bool:
    """Whether `outcomes` can make rows of saved outputs: a class or values for whole samples, or masks."""
    if task.goal == "pixels":
        return outputs.ndim == 3
    if outputs.ndim != 2 or not outputs.shape[1] or outputs.shape[1] != len(names.classes or names.targets):
        return False
    return not names.classes or task.probabilities(outputs[:1]) is not None


def outcomes(task: TaskModule, outputs: Tensor, names: Names) -> list[Row]:
    """The prediction of each sample as columns, from saved outputs (n, classes), (n, targets) or masks (n, H, W).

    One class: its name and the probabilities of all. Labels: 0 or 1 and a probability each. Numbers: their values.
    Masks: the mask (H, W) uint8, and the share of the pixels that each class has.
    """
    if task.goal == "pixels":
        return [{"mask": mask} | _shares(mask, names) for mask in outputs.numpy().astype(np.uint8)]
    probabilities = task.probabilities(outputs)
    if probabilities is None:
        return [{f"prediction_{name}": _short(value) for name, value in _named(names, row)} for row in outputs.tolist()]
    if not names.classes:
        return [
            {f"prediction_{name}": int(value > 0.5) for name, value in _named(names, row)}
            | {f"probability_{name}": _short(value) for name, value in _named(names, row)}
            for row in probabilities.tolist()
        ]
    rows: list[Row] = [{"prediction": names.classes[best]} for best in probabilities.argmax(dim=1).tolist()]
    for row, values in zip(rows, probabilities.tolist(), strict=True):
        if len(names.classes) <= MOST_CLASSES:
            row |= {f"probability_{name}": _short(value) for name, value in zip(names.classes, values, strict=True)}
        else:
            row["probability"] = _short(max(values))
    return rows


def _shares(mask: np.ndarray, names: Names) -> Row:
    if len(names.classes) > MOST_CLASSES:
        return {}
    counts = np.bincount(mask.ravel(), minlength=len(names.classes)) / mask.size
    return {f"share_{name}": _short(count) for name, count in zip(names.classes, counts.tolist(), strict=True)}


def _named(names: Names, values: Sequence[float]) -> Iterator[tuple[str, float]]:
    return zip(names.targets, values, strict=True)


def _short(value: float) -> float:
    """A number with the seven digits that a 32-bit float has."""
    return float(f"{value:.7g}")


def record_predictions(
    folder: Path, task: TaskModule, data: DataModule, predictions: Mapping[str, Mapping[str, Tensor]]
) -> None:
    """Writes predictions.npz, with names and places, and predictions.csv where a sample has a class or targets."""
    names = names_of(data)
    places = {split: data.places(split, parts["ids"].tolist()) for split, parts in predictions.items()}  # type: ignore[arg-type]
    words = {f"{split}_places": found for split, found in places.items()}
    words |= {"class_names": list(names.classes), "target_names": list(names.targets)}
    write_predictions(folder, predictions, {name: np.array(found) for name, found in words.items() if found})
    rows = chain.from_iterable(_rows(task, data, names, split, parts) for split, parts in predictions.items())
    first = next(rows, None)
    if first is not None:
        write_table(folder / TABLE, first.keys(), chain([first], rows))


def _rows(task: TaskModule, data: DataModule, names: Names, split: Any, parts: Mapping[str, Tensor]) -> Iterator[Row]:
    """The rows of one split; none where whole samples have neither classes nor targets."""
    ids, targets, outputs = (parts[name][:MOST_ROWS] for name in ("ids", "targets", "logits"))
    if not has_rows(task, outputs, names) or targets.shape[1:] != (() if names.classes else outputs.shape[1:]):
        return
    for start in range(0, len(ids), CHUNK):
        part = slice(start, start + CHUNK)
        examples = _described(data, split, ids[part].tolist())
        predicted = outcomes(task, outputs[part], names)
        for example, target, outcome in zip(examples, targets[part].tolist(), predicted, strict=True):
            yield {"split": split, **example, **_truth(names, target), **outcome}


def _described(data: DataModule, split: Any, rows: list[int]) -> list[Row]:
    """Place of each example, and its content where that is text."""
    if data.content_kind not in ("text", "smiles"):
        return [{"place": place} for place in data.places(split, rows)]
    column = str(data.content_kind)
    return [{"place": one.place, column: _cut(str(one.content))} for one in data.examples(split, rows)]


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + "…"


def _truth(names: Names, target: Any) -> Row:
    if names.classes:
        return {"target": names.classes[target]}
    return {f"target_{name}": None if np.isnan(value) else _short(value) for name, value in _named(names, target)}


def write_table(path: Path, columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes a CSV file with these columns, whole or not at all."""
    header = list(columns)
    with whole_file(path) as unfinished, unfinished.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([csv_cell(name) for name in header])
        writer.writerows([csv_cell(row.get(name)) for name in header] for row in rows)
