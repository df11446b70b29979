"""Which columns of a table of series hold what: as the options say it, and as the training table settles it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from sliceformer_lab.data.series.times import commonest_step, is_day, time_of
from sliceformer_lab.data.table_files import (
    NAMED_BY_HEADER,
    TABLES,
    RowsAndErrors,
    ending_of,
    field_of,
    rows_and_errors,
)
from sliceformer_lab.errors import DataError

ENDINGS = (*TABLES, ".txt")
MISSING = {"", "nan", "na", "n/a", "null", "none", "?"}  # in lower case: words for a missing value
MIN_TIMES = 3  # numbers that count up by one in a first line of names
NO_NAME = re.compile(r"\s*|Unnamed: \d+")  # of a column, in the file of pandas and as pandas reads it back
Column = str | int  # its name, or its number from 1 in a table without a header


@dataclass(frozen=True)
class TableForm:
    """What the options say about the columns of a table."""

    label: Column
    split: Column | None = None
    id: Column | None = None  # of a table with one time a row; None: one series a row
    time: Column | None = None  # None: rows have the order of time
    values: tuple[Column, ...] | None = None  # None: all others
    num_channels: int = 1  # of a table with one series a row: its columns are all times of one channel, then the next
    header: bool | None = None  # None: found by `has_header`

    def named(self, header: bool) -> TableForm:
        """The same with `label` as the first column where the table has no header and `label` is a name."""
        label = 1 if not header and isinstance(self.label, str) and not self.label.isdecimal() else self.label
        return replace(self, label=label, header=header)

    @cached_property
    def others(self) -> frozenset[str]:
        """The columns that hold no values."""
        return frozenset(str(column) for column in (self.label, self.split, self.id, self.time) if column is not None)


@dataclass(frozen=True)
class TableLayout:
    """What the training table settles for every table of its form."""

    header: bool  # whether the first line holds names
    values: tuple[str, ...]  # names of the columns of values; without a header their numbers from 1
    step: float | None = None  # from one time to the next; None: no times
    days: bool = False  # times are dates of eight digits

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """The layout that `asdict` and JSON made plain."""
        return cls(**content | {"values": tuple(content["values"])})

    @cached_property
    def known(self) -> frozenset[str]:
        """The names of the columns of values."""
        return frozenset(self.values)

    def check(self, place: str, row: Mapping[str, Any], form: TableForm) -> None:
        """Raises DataError for a row with other columns of values than the training table.

        Where all columns but the chosen ones are values, a row may lack some that `check_columns` found in other rows.
        """
        if form.values is not None:
            for column in self.values:
                field_of(place, row, column, "value_columns")
            return
        if not self.header and len(row) != (expected := len(self.known | form.others)):
            raise DataError(
                f"{place} has {len(row)} columns, but the training table has {expected}; without a header, all "
                "tables need the same columns: leave fields empty that are missing"
            )
        if unknown := [name for name in row if name not in self.known and name not in form.others]:
            raise DataError(
                f"{place} has a column {unknown[0]!r}, which the first row of the training table lacks; delete or "
                "rename it, or name the columns of values by data.value_columns"
            )


def check_columns(path: Path, form: TableForm, layout: TableLayout) -> None:
    """Raises DataError for a table without some column of values of the training table.

    It may lack its last times, of series that are shorter.
    """
    if form.values is not None or not layout.header:
        return  # `TableLayout.check` compares the columns of each row
    lacking = set(layout.values)
    for _, row in table_rows(path, layout.header):
        if not lacking:
            return
        lacking.difference_update(() if isinstance(row, DataError) else row)
    ordered = [name for name in layout.values if name in lacking]
    may_end = form.id is None and form.num_channels == 1 and len(ordered) < len(layout.values)
    if ordered and not (may_end and ordered == list(layout.values[-len(ordered) :])):
        raise DataError(
            f"{path} has no column {ordered[0]!r}, which the training table has; add it, with empty fields where "
            "a value is missing"
        )


def find_layout(path: Path, form: TableForm) -> TableLayout:
    """The layout of a table, from its first line, its first row and its times.

    Raises DataError for values without a name, and for a number that is also a name.
    """
    header = has_header(path, form) if form.header is None else form.header
    rows = (row for _, row in table_rows(path, header))
    first: Mapping[str, Any] = next((row for row in rows if not isinstance(row, DataError)), {})
    if header:
        _check_numbers(path, list(first), form)
    step, days = (None, False) if form.id is None or form.time is None else _step_and_days(path, form, header)
    if form.values is not None:
        return TableLayout(header, tuple(map(str, form.values)), step, days)
    others = form.named(header).others
    for number, name in enumerate(first, start=1):
        if name not in others and NO_NAME.fullmatch(name):
            raise DataError(
                f"{path}: column {number} has no name, like the index that pandas writes; save the table with "
                "index=False, or name the columns of values by data.value_columns"
            )
    return TableLayout(header, tuple(name for name in first if name not in others), step, days)


def _check_numbers(path: Path, names: list[str], form: TableForm) -> None:
    """Raises DataError for an option that is the number of one column and the name of another."""
    options = {"label_column": form.label, "split_column": form.split, "id_column": form.id, "time_column": form.time}
    for option, number in options.items():
        if isinstance(number, int) and str(number) in names and names[number - 1 : number] not in ([], [str(number)]):
            raise DataError(
                f"{path}: data.{option}={number} is the number of {names[number - 1]!r} and the name of column "
                f"{names.index(str(number)) + 1}; name the first, or write \"data.{option}='{number}'\" for the other"
            )


def _step_and_days(path: Path, form: TableForm, header: bool) -> tuple[float | None, bool]:
    """The commonest step of the times that can be read, and whether all are dates of eight digits."""
    fields: dict[str, list[Any]] = defaultdict(list)
    for _, row in table_rows(path, header):
        if not isinstance(row, DataError):
            fields[str(row.get(str(form.id)))].append(row.get(str(form.time)))
    days = all(is_day(field) for part in fields.values() for field in part)
    return commonest_step(list(_read_times(part, days)) for part in fields.values()), days


def _read_times(fields: list[Any], days: bool) -> Iterator[float]:
    for one in fields:
        with suppress(DataError):  # which `SeriesReader` raises with its place
            yield time_of("", "", one, days)


def table_rows(path: Path, header: bool) -> RowsAndErrors:
    """The rows of a table of series, or the error of each that cannot be read."""
    return rows_and_errors(path, header=header or ending_of(path) not in NAMED_BY_HEADER, endings=ENDINGS)


def has_header(path: Path, form: TableForm) -> bool:
    """Whether the first line of a text table holds names.

    They are one of the form's names, or mostly words, or times: numbers that all count up by one, as pandas numbers
    columns.
    """
    if ending_of(path) not in NAMED_BY_HEADER:
        return True
    first = next(table_rows(path, header=False), None)
    if first is None or isinstance(first[1], DataError):
        return True
    fields = [str(field).strip() for field in first[1].values()]
    chosen = (form.label, form.split, form.id, form.time, *(form.values or ()))
    if not {name for name in chosen if isinstance(name, str) and not name.isdecimal()}.isdisjoint(fields):
        return True
    numbers = [field for field in fields if field.lower() not in MISSING and _is_number(field)]
    if len(numbers) >= MIN_TIMES and all(map(str.isdecimal, numbers)):
        first_time = int(numbers[0])
        if list(map(int, numbers)) == list(range(first_time, first_time + len(numbers))):
            return True
    return 2 * sum(map(_is_number, fields)) <= len(fields)


def _is_number(text: str) -> bool:
    with suppress(ValueError):
        return text.strip().lower() in MISSING or float(text) == float(text)
    return False
