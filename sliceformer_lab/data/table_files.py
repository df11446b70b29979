"""Rows of CSV, TSV, JSONL and Parquet tables, with the line number of each for error messages.

Text tables are read by hand because pandas loses the line numbers, without which a wrong row is hard to find.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import math
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Literal

from sliceformer_lab.errors import DataError, machine_error
from sliceformer_lab.runs.plain_text import counted

if TYPE_CHECKING:
    from sliceformer_lab.data.splits import Stage  # which imports torch

Rows = Iterator[tuple[str, Mapping[str, Any]]]  # place of each row for messages, and its fields by column
RowsAndErrors = Iterator[tuple[str, Mapping[str, Any] | DataError]]
DELIMITERS = {".csv": ",", ".tsv": "\t"}
OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}  # of tables called .csv
TABLES = (*DELIMITERS, ".jsonl", ".parquet")  # endings
NAMED_BY_HEADER = (*DELIMITERS, ".txt")  # endings of tables whose first line names the columns, or not
MAX_FIELD_CHARACTERS = 10_000_000  # characters: more is no text to classify, but a quote that is never closed
MAX_UNPACKED_RATIO, MAX_UNPACKED_BYTES = 100, 100_000_000  # a packed table may have 100 times its size and 100 MB
MAX_TARGET = 1e18  # of a number to learn; its square is a float32
MAX_FRACTION_LABELS = 20  # different labels that may be fractions; 0 to 5 stars by halves are 11
MIN_CLASS_ROWS = 5  # per class, if there are more labels and all are whole numbers
SPLIT_COLUMN = "split"  # the usual name of a column that defines the splits
STAGE_NAMES: dict[str, Stage] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    "test": "test",
}


def check_table(path: Path, content: str, *, option: str = "data.file", endings: Sequence[str] = TABLES) -> None:
    """Raises DataError unless the file is a table that can be read; `content` describes it for the message."""
    if not path.is_file():
        raise DataError(f"{path} is missing; set {option} to a table of {content}")
    _check_ending(path, endings)


def table_rows(path: Path, *, header: bool = True, quotes: bool = True) -> Rows:
    """Rows of a CSV, TSV, JSONL or Parquet table; text tables may be gzipped. Raises DataError.

    For CSV and TSV: without a `header`, columns have the names 1, 2, ...; without `quotes`, a quote is a character as
    any other.
    """
    for place, row in rows_and_errors(path, header=header, quotes=quotes):
        if isinstance(row, DataError):
            raise row
        yield place, row


def rows_and_errors(
    path: Path, *, header: bool = True, quotes: bool = True, endings: Sequence[str] = TABLES
) -> RowsAndErrors:
    """As `table_rows`, but with an error in place of a row that cannot be read. Raises DataError where none can.

    Of the `endings` that are allowed, .txt is a table whose fields are between commas, spaces or tabs.
    """
    _check_ending(path, endings)
    ending = ending_of(path)
    if ending in NAMED_BY_HEADER:
        rows = _plain_rows(path) if ending == ".txt" else _separated_rows(path, DELIMITERS[ending], quotes)
        return _with_names(rows, header)
    if not (header and quotes):
        raise DataError(f"{path}: data.header and data.quotes are for CSV and TSV tables; leave them at true")
    return _read_json_lines(path) if ending == ".jsonl" else _read_parquet(path)


def field_of(place: str, row: Mapping[str, Any], column: str, option: str, advice: str = "") -> Any:
    """A field of a row. Raises DataError with the names of the columns, the option that chooses one, and `advice`."""
    if column not in row:
        names = ", ".join(shorten(name, 40, placeholder="...") if name == name.strip() else repr(name) for name in row)
        advice = separator_advice(row) or advice
        raise DataError(f"{place} has no column {column!r}; data.{option} can be one of {names}{advice}")
    return row[column]


def separator_advice(names: Collection[str]) -> str:
    """What to do where a table has one column whose name holds another separator; empty for other tables."""
    found = [kind for mark, kind in OTHER_SEPARATORS.items() if len(names) == 1 and mark in next(iter(names))]
    if found:
        return f"; if {found[0]} separate its columns, save it with commas"
    is_list = len(names) == 1 and "," in next(iter(names))  # of a table called .tsv
    return "; if commas separate its columns, call it .csv" if is_list else ""


def are_measured(labels: Sequence[str], *, is_whole: bool = True) -> bool:
    """Whether labels are measured numbers rather than classes; with `is_whole` false they are a part of the labels."""
    try:
        numbers = set(map(float, set(labels)))
    except ValueError:  # words
        return False
    fractions = any(number % 1 for number in numbers)
    return len(numbers) > MAX_FRACTION_LABELS and (
        fractions or (is_whole and len(numbers) * MIN_CLASS_ROWS > len(labels))
    )


def check_classes(file: str, column: str | int, labels: Sequence[str], *, is_whole: bool = True) -> None:
    """Raises DataError for labels that are measured numbers rather than classes; else `labels` are the first ones."""
    if are_measured(labels, is_whole=is_whole):
        raise DataError(
            f"{file}: {column} has {len(set(map(float, labels))):,} different numbers in {len(labels):,} rows, so they "
            f"are no classes; group them into a few classes, or predict them as numbers by 'data.targets=[{column}]'"
        )


def number_of(place: str, column: str, value: Any, advice: str = "") -> float:
    """A number, NaN where the field is empty. Raises DataError, which ends in `advice`, for anything else."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return math.nan
    try:
        if "_" in str(value):  # which Python reads as 1_000
            raise ValueError(value)
        number = float(value)
    except (TypeError, ValueError):
        raise DataError(
            f"{place}: {column} is {value!r}, not a number; leave it empty if it is missing{advice}"
        ) from None
    if abs(number) > MAX_TARGET:
        raise DataError(
            f"{place}: {column} is {number:g}, beyond the largest number that can be learned ({MAX_TARGET:g}); "
            f"use another unit, or leave it empty if it is missing{advice}"
        )
    return number


def tsv_rows(path: Path, columns: int) -> Iterator[tuple[str, list[str]]]:
    """Place ('FILE, line 7') and fields of each row of a TSV file without quotes. Raises DataError."""
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            where = f"{path}, line {number}"
            try:
                fields = raw.decode("utf-8").rstrip("\r\n").split("\t")
            except UnicodeDecodeError as error:
                raise DataError(f"{where}: is not UTF-8 ({error.reason}); convert the file to UTF-8") from None
            if len(fields) != columns:
                raise DataError(f"{where}: has {len(fields)} columns separated by tabs, expected {columns}")
            yield where, fields


def has_split_column(path: Path) -> bool:
    """Whether a table has a column SPLIT_COLUMN whose first field names a split."""
    with suppress(DataError):  # of a first line that names no columns
        first = next(rows_and_errors(path, endings=(*TABLES, *NAMED_BY_HEADER)), ("", {}))[1]
        return isinstance(first, Mapping) and str(first.get(SPLIT_COLUMN)).lower() in STAGE_NAMES
    return False


def split_of(place: str, row: Mapping[str, Any], column: str) -> Stage:
    """The split that a row names in a column. Raises DataError if the row names none."""
    name = str(field_of(place, row, column, "split_column"))
    if name.lower() not in STAGE_NAMES:
        raise DataError(f"{place}: {column} is {name!r}; use one of {', '.join(STAGE_NAMES)}")
    return STAGE_NAMES[name.lower()]


def decode_text(content: bytes, path: Path) -> str:
    """The text in the bytes of a file. Raises DataError with the first line that is not UTF-8."""
    try:
        return content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        encoding = "UTF-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "LATIN1"
        raise DataError(
            f"{path} is not UTF-8 in line {line} ({error.reason}); convert it, for example by iconv -f {encoding} -t "
            "UTF-8"
        ) from error


def _check_ending(path: Path, endings: Sequence[str]) -> None:
    if ending_of(path) not in endings:
        raise DataError(f"{path} ends in none of {', '.join(endings)}; convert the table to one of these formats")


def ending_of(path: Path) -> str:
    """The ending that names the format of a table: .csv for table.csv and for table.csv.gz."""
    return Path(path.stem if path.suffix == ".gz" else path.name).suffix.lower()


def _read_content(path: Path) -> bytes:
    if path.suffix != ".gz":
        return path.read_bytes()
    limit = MAX_UNPACKED_RATIO * path.stat().st_size + MAX_UNPACKED_BYTES
    try:
        with gzip.open(path) as file:
            content = file.read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise machine_error(error) or DataError(f"{path} is damaged ({error}); replace it") from error
    if len(content) > limit:
        raise DataError(f"{path} unpacks to more than {limit:,} bytes; unpack it and look at it, or replace it")
    return content


def _separated_rows(path: Path, delimiter: str, quotes: bool) -> Iterator[tuple[str, list[str]]]:
    """Place and fields of each row of a CSV or TSV table."""
    csv.field_size_limit(MAX_FIELD_CHARACTERS)
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
    lines = io.StringIO(decode_text(_read_content(path), path), newline="").readlines()
    rows = csv.reader(lines, delimiter=delimiter, quoting=quoting, strict=True)
    num_read = 0
    try:
        for fields in rows:
            read, num_read = lines[num_read : rows.line_num], rows.line_num
            if delimiter == "\t" and len(read) > 1 and all(line.count("\t") == len(fields) - 1 > 0 for line in read):
                raise DataError(
                    f"{path}: a quoted field spans lines {num_read - len(read) + 1} to {num_read}, but each of them "
                    f"has {len(fields)} columns; take the quotes out, or set data.quotes=false (task=text_csv)"
                )
            if fields:  # a blank line is no row
                yield f"{path}, line {num_read}", fields
    except csv.Error as error:
        if "field larger" in str(error):
            raise DataError(
                f"{path}, line {rows.line_num}: a field has more than {MAX_FIELD_CHARACTERS:,} characters; look for a "
                "quote that is not closed, or shorten it"
            ) from error
        raise DataError(f"{path}, line {rows.line_num}: a quote is not closed or not doubled ({error})") from error


def _plain_rows(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Place and fields of each line, which commas separate if it has any, and else spaces or tabs."""
    for number, line in enumerate(decode_text(_read_content(path), path).split("\n"), start=1):
        if text := line.strip():
            yield f"{path}, line {number}", [part.strip() for part in text.split(",")] if "," in text else text.split()


def _with_names(rows: Iterator[tuple[str, list[str]]], header: bool) -> RowsAndErrors:
    """Rows by the names in the first one, or by numbers from 1."""
    names: list[str] = []
    for place, fields in rows:
        if not names:
            names = fields if header else [str(number) for number in range(1, len(fields) + 1)]
            if header:
                _check_names(place, names)
                continue
        if len(fields) == len(names):
            yield place, dict(zip(names, fields, strict=True))
        else:
            verb, advice = ("names", separator_advice(names)) if header else ("has", "")
            here, first = counted(len(fields), "field"), counted(len(names), "column")
            yield place, DataError(f"{place} has {here}, but line 1 {verb} {first}{advice}")


def _check_names(place: str, names: Sequence[str]) -> None:
    """Raises DataError if two columns have one name, which may only be empty."""
    for name, count in Counter(names).items():
        if name.strip() and count > 1:
            times = "twice" if count == 2 else f"{count} times"
            raise DataError(f"{place} names the column {name!r} {times}; rename or delete one")


def _build_object(place: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of a JSON line. Raises DataError if two fields have one name."""
    _check_names(place, [name for name, _ in pairs])
    return dict(pairs)


def _read_json_lines(path: Path) -> RowsAndErrors:
    for number, line in enumerate(decode_text(_read_content(path), path).split("\n"), start=1):
        if line.strip():
            place = f"{path}, line {number}"
            if len(line) > MAX_FIELD_CHARACTERS:
                yield place, DataError(f"{place} has more than {MAX_FIELD_CHARACTERS:,} characters; shorten it")
                continue
            try:
                row = json.loads(line, object_pairs_hook=partial(_build_object, place))
            except DataError as error:
                yield place, error
                continue
            except (ValueError, RecursionError) as error:
                yield place, DataError(f"{place} is not JSON ({error})")
                continue
            expected = DataError(f'{place} is not an object such as {{"text": "...", "label": "..."}}')
            yield place, row if isinstance(row, dict) else expected


def _read_parquet(path: Path) -> RowsAndErrors:
    import pandas as pd  # slow to import, and only this format needs it

    try:
        table = pd.read_parquet(path)
    except ImportError as error:
        raise DataError(f"{path}: reading Parquet needs pyarrow (pip install pyarrow), or save it as JSONL") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as Parquet ({error})") from error
    _check_names(str(path), list(map(str, table.columns)))
    for number, row in enumerate(table.to_dict("records"), start=1):
        yield f"{path}, row {number}", {str(column): value for column, value in row.items()}
