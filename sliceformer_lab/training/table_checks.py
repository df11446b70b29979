"""Whether the tables of a configuration have the columns and classes that it names. Looks before torch is imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from sliceformer_lab.data.table_files import STAGE_NAMES, check_classes, ending_of, field_of, rows_and_errors
from sliceformer_lab.errors import DataError

TABLES = ("file", "val_file", "test_file")
MAX_CHECKED_ROWS = 20_000  # in which labels are looked for: a tenth of a second
CONTENT_COLUMNS = ("text_column", "image_column", "smiles_column")
COLUMNS = ("text_column", "image_column", "label_column", "smiles_column", "split_column", "targets")


def check_columns(config: Mapping[str, Any]) -> None:
    """Raises DataError for the first row of a table that cannot be read or lacks a column."""
    data = config["data"]
    columns = {option: _list_of(data.get(option)) for option in COLUMNS if data.get(option) is not None}
    if "targets" in columns:  # which take the place of the classes
        columns.pop("label_column", None)
    header, quotes = data.get("header", True), data.get("quotes", True)
    advice = "; if the first line of this CSV or TSV is a text, set data.header=false" if data.get("header") else ""
    for path in _list_tables(data) if columns else ():
        place, row = next(rows_and_errors(path, header=header, quotes=quotes), ("", {}))
        if isinstance(row, DataError):
            raise row
        for option, names in columns.items() if place else ():
            for name in names:
                field_of(str(path), row, str(name), option, advice)


def check_labels(config: Mapping[str, Any]) -> None:
    """Raises DataError if the first labels of a table are measured numbers; later rows are the data module's task."""
    data = config["data"]
    column, split, path = data.get("label_column"), data.get("split_column"), next(_list_tables(data), None)
    if column is None or path is None:
        return
    if data.get("targets") is not None or data.get("labels_separator") is not None:
        return
    rows = rows_and_errors(path, header=data.get("header", True), quotes=data.get("quotes", True))
    found = [row for _, row in islice(rows, MAX_CHECKED_ROWS)]
    trained = [row for row in found if not isinstance(row, DataError) and (split is None or _is_trained(row, split))]
    labels = [str(row.get(str(column))) for row in trained]
    check_classes(data["file"], column, labels, is_whole=len(found) < MAX_CHECKED_ROWS)


def _is_trained(row: Mapping[str, Any], split_column: str) -> bool:
    return STAGE_NAMES.get(str(row.get(str(split_column))).lower()) == "train"


def _list_tables(data: Mapping[str, Any]) -> Iterator[Path]:
    if not any(column in data for column in CONTENT_COLUMNS):
        return  # tables of series have rules of their own
    for option in TABLES:
        if isinstance(name := data.get(option), str) and ending_of(path := Path(name).expanduser()) != ".parquet":
            yield path  # reading Parquet takes longer than importing torch


def _list_of(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
