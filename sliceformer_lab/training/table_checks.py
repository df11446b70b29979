"""Whether the tables of a configuration have the columns that it names. Looks before torch is imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sliceformer_lab.data.table_files import ending_of, field_of, rows_and_errors
from sliceformer_lab.errors import DataError

TABLES = ("file", "val_file", "test_file")
COLUMNS = ("text_column", "label_column", "smiles_column", "split_column", "targets")


def check_columns(config: Mapping[str, Any]) -> None:
    """Raises DataError for the first row of a table that cannot be read or lacks a column."""
    data = config["data"]
    columns = {option: _list_of(data.get(option)) for option in COLUMNS if data.get(option) is not None}
    header, quotes = data.get("header", True), data.get("quotes", True)
    advice = "; if the first line of this CSV or TSV is a text, set data.header=false" if data.get("header") else ""
    for path in _tables(data) if columns else ():
        place, row = next(rows_and_errors(path, header=header, quotes=quotes), ("", {}))
        if isinstance(row, DataError):
            raise row
        for option, names in columns.items() if place else ():
            for name in names:
                field_of(str(path), row, str(name), option, advice)


def _tables(data: Mapping[str, Any]) -> Iterator[Path]:
    for option in TABLES:
        if isinstance(name := data.get(option), str) and ending_of(path := Path(name).expanduser()) != ".parquet":
            yield path  # reading Parquet takes longer than importing torch


def _list_of(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
