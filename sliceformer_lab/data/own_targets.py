"""A user's own numbers or labels to predict: what they are, and how the fields of a table are read as such."""

# No `from __future__ import annotations` in data modules; `data.base` says why.

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from sliceformer_lab.data.class_names import number_classes
from sliceformer_lab.data.own_data import Column, OwnData
from sliceformer_lab.data.rounding import check_targets
from sliceformer_lab.data.spec import Choice
from sliceformer_lab.data.splits import Stage
from sliceformer_lab.data.table_files import field_of, number_of
from sliceformer_lab.errors import DataError
from sliceformer_lab.runs.plain_text import counted

SCORED: tuple[Stage, ...] = ("val", "test")
MAX_SPREAD_RATIO = 10.0  # of two numbers, above which their mean absolute error is little more than that of one
Kind = Literal["regression", "classification"]
Target = str | tuple[str, ...] | tuple[float, ...]  # a class, labels or numbers of an example
Labelled = tuple[Stage, str, Target]  # split, place and target of an example


@dataclass(kw_only=True, eq=False, repr=False)
class OwnTargets(OwnData):
    """A user's own data with numbers, or labels 0 and 1, in the columns of a table.

    With `kind=None` they are labels if every value is 0, 1 or missing. `unit` is that of numbers, for pictures and the
    summary.
    """

    kind: Kind | None = None
    unit: str | None = None

    def target_unit(self) -> str | None:
        return self.unit

    @property
    def has_classes(self) -> bool:
        """Whether an example has one class instead."""
        return False

    def setup(self, stage: str | None = None) -> None:
        """Makes the splits. Raises DataError for labels other than 0 and 1, or for a split to score without targets."""
        if self.splits:
            return
        if self.kind == "classification" and not self.has_classes and (found := self._other_than_labels()):
            raise DataError(
                f"{self.origin}: {found[0]} has the value {found[1]:g}, but labels are 0, 1 or empty; "
                "set data.kind=regression"
            )
        super().setup(stage)
        for part in SCORED:
            names = self._unknown_targets(part)
            if names and names == list(self.target_names()):
                raise DataError(f"{self.origin}: no {part} example has {' or '.join(names)}; add some")

    def remarks(self) -> list[str]:
        """Names targets that a split to score lacks, those with one value in training, and numbers of unlike size."""
        found = [*super().remarks(), *self._unlike_numbers()]
        for name, value in self._constant_targets():
            found.append(f"{name} is {value:g} in every training example that has it, so nothing can be learned of it")
        for stage in SCORED:
            if names := self._unknown_targets(stage):
                found.append(f"no {stage} example has {' or '.join(names)}, so its scores are those of the others")
        return found

    def _unlike_numbers(self) -> list[str]:
        """A sentence if one number has so large a spread that the mean error of all is its own."""
        if len(names := self.target_names()) < 2 or self.targets_are == "labels":
            return []
        constant = dict(self._constant_targets())
        spreads = zip(self.target_statistics()[1].tolist(), names, strict=True)
        known = sorted((spread, name) for spread, name in spreads if name not in constant)
        if not known or known[-1][0] <= MAX_SPREAD_RATIO * known[0][0]:
            return []
        (least, small), (most, large) = known[0], known[-1]
        return [
            f"{large} has a standard deviation of {most:.3g} and {small} of {least:.3g}, so mae, the mean error of all "
            f"targets, is mostly that of {large}, and it selects the epoch; r2 counts them alike; or predict {small} "
            "in a run of its own"
        ]

    def _constant_targets(self) -> list[tuple[str, float]]:
        """Name and value of each target that is the same in all training examples."""
        if not (names := self.target_names()):
            return []
        least = self.training_targets().nan_to_num(nan=math.inf).amin(dim=0)
        most = self.training_targets().nan_to_num(nan=-math.inf).amax(dim=0)
        return [(name, float(value)) for name, value, same in zip(names, least, least == most, strict=True) if same]

    def _unknown_targets(self, stage: Stage) -> list[str]:
        """The targets that no example of a split has; [] for an empty split."""
        split = self.splits[stage]
        if not len(split) or not (names := self.target_names()):
            return []
        missing = split.targets_at(list(range(len(split)))).isnan().all(dim=0)
        return [name for name, unknown in zip(names, missing.tolist(), strict=True) if unknown]

    @abstractmethod
    def target_values(self) -> np.ndarray:
        """All values (n, T), NaN where they are missing. Raises DataError."""

    @cached_property
    def _chosen_kind(self) -> Choice:
        names = ", ".join(self.target_names())
        if (found := self._other_than_labels()) is None:
            return Choice("data.kind", "classification", f"every value of {names} is 0, 1 or empty")
        name, value = found
        return Choice("data.kind", "regression", f"{name} has values other than 0 and 1, such as {value:g}")

    def _other_than_labels(self) -> tuple[str, float] | None:
        """Name and value of a target that is no label; None if every value is 0, 1 or missing."""
        values = self.target_values()
        rows, columns = np.nonzero((values != 0) & (values != 1) & ~np.isnan(values))
        return (self.target_names()[columns[0]], float(values[rows[0], columns[0]])) if len(rows) else None

    @property
    def targets_are(self) -> Literal["numbers", "labels"]:
        """What the targets are. Reads them unless `kind` says it. Raises DataError."""
        kind = self._chosen_kind.value if self.kind is None else self.kind
        return "labels" if kind == "classification" else "numbers"

    def choices(self) -> list[Choice]:
        return [*super().choices(), *([] if self.has_classes or self.kind is not None else [self._chosen_kind])]


@dataclass(kw_only=True, eq=False, repr=False)
class TableTargets(OwnTargets):
    """A table whose rows have one class, several labels in one field, or numbers or labels in columns of their own.

    The field of `label_column` is the class; with `labels_separator` it has any number of labels, also none, and in
    JSONL and Parquet it may be a list. `targets` names columns of numbers, or of labels 0 and 1, instead.
    Raises ValueError if both are set.
    """

    label_column: Column = "label"
    labels_separator: str | None = None
    targets: tuple[Column, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.targets is not None and (self.labels_separator is not None or not self.targets):
            raise ValueError(
                f"targets={list(self.targets)} and labels_separator={self.labels_separator!r}: set the columns of "
                "numbers or labels, or what separates the labels in label_column, and leave the other null"
            )

    @property
    def has_classes(self) -> bool:
        return self.targets is None and self.labels_separator is None

    @cached_property
    def _chosen_kind(self) -> Choice:
        if self.labels_separator is None:
            return super()._chosen_kind
        found = counted(len(self.target_names()), "label")
        return Choice("data.kind", "classification", f"{found} in the fields of {self.label_column}")

    def target_names(self) -> tuple[str, ...]:
        if self.has_classes:
            return ()
        return tuple(map(str, self.targets)) if self.targets is not None else self.found_labels()

    @property
    def absent_target(self) -> float:
        """0 for a label that no row has, as it is false in all; else NaN."""
        return 0.0 if self.labels_separator is not None else super().absent_target

    @abstractmethod
    def found_labels(self) -> tuple[str, ...]:
        """The labels in the fields of `label_column`, sorted. Raises DataError."""

    @property
    def target_columns(self) -> dict[str, Any]:
        """What the targets are read from, for the key of a cache."""
        columns = None if self.targets is None else list(self.targets)
        return {"label": self.label_column, "labels_separator": self.labels_separator, "targets": columns}

    def target_of(self, place: str, row: Mapping[str, Any], advice: str = "") -> Target:
        """The class, labels or numbers of a row. Raises DataError, with `advice` where a column is missing."""
        if self.targets is not None:
            columns = [(str(column), field_of(place, row, str(column), "targets", advice)) for column in self.targets]
            return tuple(number_of(place, column, field) for column, field in columns)
        field = field_of(place, row, str(self.label_column), "label_column", advice)
        return self._class_in(place, field) if self.labels_separator is None else self._labels_in(place, field)

    def encode_targets(self, examples: Sequence[Labelled], contents: str) -> tuple[dict[str, list[str]], np.ndarray]:
        """The names of classes or labels as "classes" or "labels", and the targets (n,) int64 or (n, T) float32.

        `contents` is what the examples are, for messages. Raises DataError.
        """
        if self.has_classes:
            named = [(stage, place, str(target)) for stage, place, target in examples]
            classes, numbers = number_classes(named, contents)
            return {"classes": classes}, numbers
        rows = [target for *_, target in examples]
        if self.targets is not None:
            check_targets(self.origin, rows, self.target_names())
            return {}, np.array(rows, dtype=np.float32)
        if not (labels := sorted({str(label) for row in rows for label in row})):
            raise DataError(f"{self.origin}: no row has a label; choose another data.label_column")
        return {"labels": labels}, np.array([[label in row for label in labels] for row in rows], dtype=np.float32)

    def _class_in(self, place: str, field: Any) -> str:
        is_missing = field is None or str(field).strip().lower() in ("", "nan")  # pandas writes the latter
        if is_missing or not isinstance(field, str | int):
            advice = "add it or delete the row"
            if isinstance(field, list | np.ndarray):
                advice = "for several labels a row, set data.labels_separator"
            elif not is_missing:
                advice = f"write it so, or predict numbers by data.targets=[{self.label_column}]"
            raise DataError(f"{place}: {self.label_column} is {field!r}, expected a word or a whole number; {advice}")
        return str(field)

    def _labels_in(self, place: str, field: Any) -> tuple[str, ...]:
        if isinstance(field, np.ndarray):
            field = field.tolist()
        if field is None or (isinstance(field, float) and math.isnan(field)):  # pandas has both for a missing string
            return ()
        parts = field if isinstance(field, list) else str(field).split(self.labels_separator)
        if not all(isinstance(part, str | int) for part in parts):
            raise DataError(f"{place}: {self.label_column} is {field!r}, expected words or a list of words")
        return tuple(sorted({name for part in parts if (name := str(part).strip())}))
