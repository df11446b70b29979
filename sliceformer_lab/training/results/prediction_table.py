"""Predictions as rows that a person can read: names of classes and targets, and where each example comes from."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
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
from sliceformer_lab.training.results.predicted import Names, PredictedSplits, TableRow

PREPROCESSING, TABLE = "preprocessing.json", "predictions.csv"
MAX_TABLE_ROWS = 100_000  # of each split in predictions.csv; predictions.npz has all
MAX_TEXT_CHARACTERS = 1_000  # of a text in predictions.csv
CHUNK = 1_000  # examples that are read at once


def names_of(data: DataModule, thresholds: tuple[float, ...]) -> Names:
    """The names of a data set, with the thresholds of labels. Classes without a name have their number."""
    known, count = data.class_names(), data.spec.num_classes
    return Names((*known, *map(str, range(len(known), count))), data.target_names(), thresholds)


def save_preprocessing(folder: Path, data: DataModule, names: Names) -> None:
    """Writes into a run folder what predicting new inputs needs besides configuration and checkpoint."""
    data.save_encoder(folder)
    write_json(folder / PREPROCESSING, {"data": asdict(data.spec), **asdict(names)})


def read_preprocessing(folder: Path) -> tuple[DataSpec, Names] | None:
    """The sizes of the data and the names of the outputs; None before the run has ended."""
    try:
        content = json.loads((folder / PREPROCESSING).read_text(encoding="utf-8"))
        thresholds = tuple(content.get("thresholds", ()))  # which the first runs of this format have not
        names = Names(tuple(content["classes"]), tuple(content["targets"]), thresholds)
        return DataSpec.from_json(content["data"]), names
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(f"{folder / PREPROCESSING} cannot be read ({error!r})") from error


def record_predictions(
    folder: Path, task: TaskModule, data: DataModule, names: Names, predictions: PredictedSplits
) -> None:
    """Writes predictions.npz, with names and places, and predictions.csv if the task has such a table."""
    places = {split: data.places(split, parts["ids"].tolist()) for split, parts in predictions.items()}  # type: ignore[arg-type]
    words = {f"{split}_places": found for split, found in places.items()}
    words |= {"class_names": list(names.classes), "target_names": list(names.targets)}
    write_predictions(folder, predictions, {name: np.array(found) for name, found in words.items() if found})
    rows = chain.from_iterable(_list_rows(task, data, names, split, parts) for split, parts in predictions.items())
    first = next(rows, None)
    if first is not None:
        write_table(folder / TABLE, first.keys(), chain([first], rows))


def _list_rows(
    task: TaskModule, data: DataModule, names: Names, split: Any, parts: Mapping[str, Tensor]
) -> Iterator[TableRow]:
    """The rows of one split; none if the task has no such table."""
    ids, targets, outputs = (parts[name][:MAX_TABLE_ROWS] for name in ("ids", "targets", "logits"))
    if not task.truths(targets[:1], names):
        return
    for start in range(0, len(ids), CHUNK):
        part = slice(start, start + CHUNK)
        examples = _describe_examples(data, split, ids[part].tolist())
        truths, outcomes = task.truths(targets[part], names), task.outcomes(outputs[part], names)
        for example, truth, outcome in zip(examples, truths, outcomes, strict=True):
            yield {"split": split, **example, **truth, **outcome}


def _describe_examples(data: DataModule, split: Any, rows: list[int]) -> list[TableRow]:
    """Place of each example, and its content where that is text."""
    if data.content_kind not in ("text", "smiles"):
        return [{"place": place} for place in data.places(split, rows)]
    column = str(data.content_kind)
    return [{"place": one.place, column: _cut_text(str(one.content))} for one in data.examples(split, rows)]


def _cut_text(text: str) -> str:
    return text if len(text) <= MAX_TEXT_CHARACTERS else text[:MAX_TEXT_CHARACTERS] + "…"


def write_table(path: Path, columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes a CSV file with these columns, whole or not at all."""
    header = list(columns)
    with whole_file(path) as unfinished, unfinished.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([csv_cell(name) for name in header])
        writer.writerows([csv_cell(row.get(name)) for name in header] for row in rows)
