"""Series in tables: one a row, as in the files of the UCR archive, or one value of time a row."""

from __future__ import annotations

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


def read_series(path: Path, form: TableForm, layout: TableLayout) -> Iterator[Series]:
    """The labelled series of a table in the order of their first rows. Raises DataError for the first bad row."""
    for found in series_and_errors(path, form, layout, labelled=True):
        if not isinstance(found, Series):
            raise found[1]
        yield found


def series_and_errors(path: Path, form: TableForm, layout: TableLayout, *, labelled: bool) -> Found:
    """As `read_series`, but with an error in place of a series that cannot be read. Raises DataError if none can.

    A table that is not `labelled` may lack the columns of labels and splits. Labels are then empty, but in a table
    without a header whatever its column of labels holds.
    """
    form = form.named(layout.header)
    check_columns(path, form, layout)
    read = _rows_of_series if form.id is None else _rows_of_times
    return read(table_rows(path, layout.header), form, layout, labelled)


def _rows_of_series(rows: RowsAndErrors, form: TableForm, layout: TableLayout, labelled: bool) -> Found:
    for place, row in rows:
        try:
            if isinstance(row, DataError):
                raise row
            label, stage = _label_and_stage(place, row, form, labelled)
            yield Series(_wide_values(place, row, form, layout, labelled), label, place, stage)
        except DataError as error:
            yield place, error


def _wide_values(
    place: str, row: Mapping[str, Any], form: TableForm, layout: TableLayout, labelled: bool
) -> np.ndarray:
    """The values (L, C) of a row; missing ones at its end are none."""
    if len(layout.values) % form.num_channels:
        raise DataError(
            f"{place} has {len(layout.values)} values, which data.num_channels={form.num_channels} does not divide; "
            "give every channel as many columns"
        )
    numbers = _read_numbers(place, row, form, layout, labelled).reshape(form.num_channels, -1).T
    known = np.flatnonzero(~np.isnan(numbers).all(axis=1))
    if not len(known):
        raise DataError(f"{place} has no values; delete the row")
    return numbers[: known[-1] + 1]


def _read_numbers(
    place: str, row: Mapping[str, Any], form: TableForm, layout: TableLayout, labelled: bool
) -> np.ndarray:
    """The values (n,) of a row in the order of the layout, NaN where they are missing.

    Raises DataError; of a table that is `labelled` and so no new input, it says that a column may hold no values.
    """
    layout.check(place, row, form)
    columns = layout.values
    fields = [row.get(column) for column in columns]
    numbers = None
    with suppress(TypeError, ValueError):
        numbers = np.array(fields, dtype=np.float64)
    if numbers is None or numbers.ndim > 1 or any("_" in part for part in fields if isinstance(part, str)):
        if lists := [at for at, part in enumerate(fields) if isinstance(part, list | np.ndarray)]:
            raise DataError(
                f"{place}: {columns[lists[0]]} is a list; give each value a column of its own, or each time a row"
            )
        known = [None if isinstance(part, str) and part.strip().lower() in MISSING else part for part in fields]
        numbers = np.array([_read_value(place, *pair, labelled) for pair in zip(columns, known, strict=True)])
    beyond = np.flatnonzero(np.abs(numbers) > MAX_TARGET)  # infinity, too
    if len(beyond):
        name, value = columns[beyond[0]], numbers[beyond[0]]
        raise DataError(f"{place}: {name} is {value:g}, beyond the largest number that can be learned ({MAX_TARGET:g})")
    return numbers


def _read_value(place: str, column: str, field: Any, labelled: bool) -> float:
    """A field as a number, NaN where it is missing. Raises DataError, as `_read_numbers`."""
    try:
        return number_of(place, column, field)
    except DataError as error:
        if not labelled:
            raise
        raise DataError(f"{error}; if {column} holds no values, name the others by data.value_columns") from None


def _label_and_stage(place: str, row: Mapping[str, Any], form: TableForm, labelled: bool) -> tuple[str, Stage | None]:
    if not labelled:
        return "" if form.header else str(row.get(str(form.label), "")).strip(), None
    advice = "" if form.header is False else "; without a header in the first line, set data.header=false"
    label = field_of(place, row, str(form.label), "label_column", advice)
    if label is None or str(label).strip().lower() in MISSING:
        raise DataError(f"{place}: {form.label} is {label!r}, expected a class or a number; add it or delete the row")
    return str(label).strip(), None if form.split is None else split_of(place, row, str(form.split))


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


def _read_id(place: str, row: Mapping[str, Any], column: Column | None) -> str:
    field = field_of(place, row, str(column), "id_column")
    if field is None or str(field).strip() in NO_ID:
        raise DataError(f"{place}: {column} is {field!r}, expected the id of a series; add it or delete the row")
    return str(field)


def _rows_of_times(rows: RowsAndErrors, form: TableForm, layout: TableLayout, labelled: bool) -> Found:
    found: dict[str, _Long] = {}
    for place, row in rows:
        if isinstance(row, DataError):
            raise row  # its series is unknown, so no series can be left out instead
        name = _read_id(place, row, form.id)
        try:
            label, stage = _label_and_stage(place, row, form, labelled)
            one = found.setdefault(name, _Long(label, stage, f"{place} ({name})"))
            for word, before, now in (("label", one.label, label), ("split", one.stage, stage)):
                if before != now:
                    raise DataError(f"{place}: {name} has the {word} {now!r}, but {before!r} before; give it one")
            one.values.append(_read_numbers(place, row, form, layout, labelled))
            one.times.append(len(one.times) if form.time is None else _read_time(place, row, form.time, layout.days))
        except DataError as error:
            one = found.setdefault(name, _Long("", None, f"{place} ({name})"))
            one.error = one.error or error
    for one in found.values():
        try:
            yield Series(one.series(layout.step or 1.0), one.label, one.place, one.stage)
        except DataError as error:
            yield one.place, error


def _read_time(place: str, row: Mapping[str, Any], column: Column, days: bool) -> float:
    return time_of(place, column, field_of(place, row, str(column), "time_column"), days)
