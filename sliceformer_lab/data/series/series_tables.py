"""Series in tables: one a row, as in the files of the UCR archive, or one value of time a row."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sliceformer_lab.data.series.table_form import MISSING, Column, TableForm, TableLayout, check_columns, table_rows
from sliceformer_lab.data.series.times import in_time, time_of
from sliceformer_lab.data.splits import Stage
from sliceformer_lab.data.table_files import MAX_TARGET, RowsAndErrors, field_of, number_of, split_of
from sliceformer_lab.errors import DataError

NO_ID = ("", "nan", "NaN", "<NA>")  # the last ones as pandas has them


@dataclass(frozen=True)
class Series:
    """A series, its class or number as it is written, and its place for messages."""

    values: np.ndarray  # (L, C) numbers, NaN where a value is missing
    label: str  # empty: none
    place: str
    stage: Stage | None = None  # None: its table or `split_seed` says it


Found = Iterator[Series | tuple[str, DataError]]  # a series, or the place and the error of one that cannot be read


@dataclass
class _Long:
    """A series of a table with one time a row, as far as it was read."""

    label: str
    stage: Stage | None
    place: str
    times: list[float] = field(default_factory=list)
    values: list[np.ndarray] = field(default_factory=list)
    error: DataError | None = None

    def series(self, step: float) -> np.ndarray:
        """The values (L, C) by time. Raises DataError."""
        if self.error is not None:
            raise self.error
        if np.isnan(self.values).all():
            raise DataError(f"{self.place} has no values; delete its rows")
        return in_time(self.place, self.times, self.values, step)


@dataclass
class SeriesReader:
    """Reads the series of tables with one layout.

    Tables that are not `labelled` are new inputs, which may lack the columns of labels and splits. Labels are then
    empty, but in a table without a header whatever its column of labels holds.
    """

    form: TableForm
    layout: TableLayout
    labelled: bool = True

    def __post_init__(self) -> None:
        self.form = self.form.named(self.layout.header)

    def series(self, path: Path) -> Iterator[Series]:
        """The series of a table in the order of their first rows. Raises DataError for the first bad row."""
        for found in self.series_and_errors(path):
            if not isinstance(found, Series):
                raise found[1]
            yield found

    def series_and_errors(self, path: Path) -> Found:
        """As `series`, but with an error in place of a series that cannot be read. Raises DataError if none can."""
        check_columns(path, self.form, self.layout)
        rows = table_rows(path, self.layout.header)
        return self._wide_series(rows) if self.form.id is None else self._long_series(rows)

    def _wide_series(self, rows: RowsAndErrors) -> Found:
        for place, row in rows:
            try:
                if isinstance(row, DataError):
                    raise row
                label, stage = self._label_and_stage(place, row)
                yield Series(self._wide_values(place, row), label, place, stage)
            except DataError as error:
                yield place, error

    def _wide_values(self, place: str, row: Mapping[str, Any]) -> np.ndarray:
        """The values (L, C) of a row; missing ones at its end are none."""
        count, channels = len(self.layout.values), self.form.num_channels
        if count % channels:
            raise DataError(
                f"{place} has {count} values, which data.num_channels={channels} does not divide; give every channel "
                "as many columns"
            )
        numbers = self._numbers(place, row).reshape(channels, -1).T
        known = np.flatnonzero(~np.isnan(numbers).all(axis=1))
        if not len(known):
            raise DataError(f"{place} has no values; delete the row")
        return numbers[: known[-1] + 1]

    def _numbers(self, place: str, row: Mapping[str, Any]) -> np.ndarray:
        """The values (n,) of a row in the order of the layout, NaN where they are missing. Raises DataError."""
        self.layout.check(place, row, self.form)
        columns = self.layout.values
        fields = [row.get(column) for column in columns]
        numbers = None
        with suppress(TypeError, ValueError):
            numbers = np.array(fields, dtype=np.float64)
        if numbers is None or numbers.ndim > 1 or any("_" in part for part in fields if isinstance(part, str)):
            if lists := [at for at, part in enumerate(fields) if isinstance(part, list | np.ndarray)]:
                raise DataError(
                    f"{place}: {columns[lists[0]]} is a list; give each value a column of its own, or each time a row"
                )
            numbers = np.array([self._number(place, *pair) for pair in zip(columns, fields, strict=True)])
        beyond = np.flatnonzero(np.abs(numbers) > MAX_TARGET)  # infinity, too
        if len(beyond):
            name, value = columns[beyond[0]], numbers[beyond[0]]
            raise DataError(
                f"{place}: {name} is {value:g}, beyond the largest number that can be learned ({MAX_TARGET:g})"
            )
        return numbers

    def _number(self, place: str, column: str, field: Any) -> float:
        if isinstance(field, str) and field.strip().lower() in MISSING:
            return math.nan
        advice = f"; if {column} holds no values, name the others by data.value_columns" if self.labelled else ""
        return number_of(place, column, field, advice)

    def _label_and_stage(self, place: str, row: Mapping[str, Any]) -> tuple[str, Stage | None]:
        form = self.form
        if not self.labelled:
            return "" if form.header else str(row.get(str(form.label), "")).strip(), None
        advice = "" if form.header is False else "; without a header in the first line, set data.header=false"
        label = field_of(place, row, str(form.label), "label_column", advice)
        if label is None or str(label).strip().lower() in MISSING:
            raise DataError(
                f"{place}: {form.label} is {label!r}, expected a class or a number; add it or delete the row"
            )
        return str(label).strip(), None if form.split is None else split_of(place, row, str(form.split))

    def _long_series(self, rows: RowsAndErrors) -> Found:
        found: dict[str, _Long] = {}
        for place, row in rows:
            if isinstance(row, DataError):
                raise row  # its series is unknown, so no series can be left out instead
            name = self._id(place, row)
            try:
                label, stage = self._label_and_stage(place, row)
                one = found.setdefault(name, _Long(label, stage, f"{place} ({name})"))
                for word, before, now in (("label", one.label, label), ("split", one.stage, stage)):
                    if before != now:
                        raise DataError(f"{place}: {name} has the {word} {now!r}, but {before!r} before; give it one")
                one.values.append(self._numbers(place, row))
                one.times.append(len(one.times) if self.form.time is None else self._time(place, row, self.form.time))
            except DataError as error:
                one = found.setdefault(name, _Long("", None, f"{place} ({name})"))
                one.error = one.error or error
        for one in found.values():
            try:
                yield Series(one.series(self.layout.step or 1.0), one.label, one.place, one.stage)
            except DataError as error:
                yield one.place, error

    def _id(self, place: str, row: Mapping[str, Any]) -> str:
        column = str(self.form.id)
        field = field_of(place, row, column, "id_column")
        if field is None or str(field).strip() in NO_ID:
            raise DataError(f"{place}: {column} is {field!r}, expected the id of a series; add it or delete the row")
        return str(field)

    def _time(self, place: str, row: Mapping[str, Any], column: Column) -> float:
        return time_of(place, column, field_of(place, row, str(column), "time_column"), self.layout.days)
