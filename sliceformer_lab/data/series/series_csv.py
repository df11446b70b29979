"""Your own series in a table: one a row, as the files of the UCR archive, or one time a row."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from sliceformer_lab.config.option_types import Count
from sliceformer_lab.data.cache import IDENTITY
from sliceformer_lab.data.own_data import Column, OwnTables
from sliceformer_lab.data.series.base import SeriesData
from sliceformer_lab.data.series.coding import CODING_FILE, SeriesCoding
from sliceformer_lab.data.series.labels import as_whole_numbers
from sliceformer_lab.data.series.series_tables import Series, SeriesReader
from sliceformer_lab.data.series.table_form import ENDINGS, MISSING, TableForm, TableLayout, find_layout
from sliceformer_lab.data.spec import NewInput
from sliceformer_lab.data.table_files import check_table
from sliceformer_lab.errors import DataError
from sliceformer_lab.runs.files import write_json

LAYOUT_FILE = f"{IDENTITY}layout.json"


@dataclass(kw_only=True, eq=False, repr=False)
class SeriesTable(SeriesData, OwnTables):
    """Series of a table with one class or number each. A column, separate files, or fractions define the splits.

    Without `id_column` a row is a series: label first in a table without a header, then its values; missing values at
    the end of a row are none, so that series may differ in length. With `id_column` a row is one time of a series, and
    `value_columns` are its channels. Raises ValueError for channels of rows with an id.
    """

    title = "series_csv"
    note = "your own series; sha256 is of their values and labels"

    label_column: Column = "label"
    value_columns: tuple[Column, ...] | None = None
    num_channels: Count = 1
    id_column: Column | None = None
    time_column: Column | None = None
    header: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.id_column is not None and self.num_channels > 1:
            raise ValueError(
                f"num_channels={self.num_channels} is for tables with one series a row; with id_column, name the "
                "channels by value_columns"
            )
        if self.time_column is not None and self.id_column is None:
            raise ValueError(f"time_column={self.time_column} needs id_column, which says whose time it is")

    @property
    def form(self) -> TableForm:
        return TableForm(
            self.label_column,
            self.split_column,
            self.id_column,
            self.time_column,
            self.value_columns,
            self.num_channels,
            self.header,
        )

    @property
    def number_name(self) -> str:
        return str(self.label_column)

    def source(self) -> dict[str, Any]:
        for path in self.files.values():
            check_table(path, "series", endings=ENDINGS)
        trained = self._trained_times
        times = {} if trained is None else {"step": trained.step, "days": trained.days}
        return self.known_by({name: value for name, value in vars(self.form).items() if value is not None} | times)

    @cached_property
    def _trained_times(self) -> TableLayout | None:
        """The layout of the table that a model was trained on, whose time step holds; None: this table's own."""
        return None if self.time_column is None or self._saved_coding is None else self._saved_coding.table

    def read(self) -> Iterator[Series]:
        reader = SeriesReader(self.form, self._found_layout)
        for stage, path in self.files.items():
            for series in reader.series(path):
                given = series.stage if self.split_column is not None else None if stage == "train" else stage
                yield replace(series, stage=given)

    @cached_property
    def _found_layout(self) -> TableLayout:
        found, trained = find_layout(self.origin, self.form), self._trained_times
        return found if trained is None else replace(found, step=trained.step, days=trained.days)

    def _build(self, folder: Path) -> None:
        super()._build(folder)
        write_json(folder / LAYOUT_FILE, asdict(self._found_layout))

    @cached_property
    def _layout(self) -> TableLayout:
        """The layout of the training table, which the cache keeps."""
        return TableLayout.from_json(json.loads((self.folder / LAYOUT_FILE).read_text(encoding="utf-8")))

    @property
    def _unscaled(self) -> SeriesCoding:
        return replace(super()._unscaled, table=self._layout)

    def check_coding(self, coding: SeriesCoding) -> None:
        known = coding.table
        if known is None or not known.header or not self._layout.header or known.values == self._layout.values:
            return
        raise DataError(
            f"{self.origin} has other columns of values than the run was trained on, or another order; set "
            f"data.value_columns to those in {CODING_FILE} of the run"
        )

    def remarks(self) -> list[str]:
        """Asks for the column of labels where the first one of a table without a header looks like a value."""
        found = super().remarks()
        chosen = self.kind is None and self._kind == "regression" and isinstance(self.label_column, str)
        if chosen and not self._layout.header:
            width = len(self._layout.values) + 1
            found.append(
                f"{self.origin} has no header, so its first column holds the numbers to predict; if the labels come "
                f"last, set data.label_column={width}"
            )
        return found

    def read_inputs(self, path: Path, column: str | None) -> Iterator[NewInput]:
        """The series of a new table of the same form, with or without labels.

        A row without a header whose label is no class of the run has an error: it may be a value.
        """
        if column is not None:
            raise DataError(f"column={column}: a table of series has many columns; name them as in training")
        check_table(path, "series", option="input", endings=ENDINGS)
        layout = (self._saved_coding and self._saved_coding.table) or find_layout(path, self.form)
        for found in SeriesReader(self.form, layout, labelled=False).series_and_errors(path):
            if isinstance(found, Series):
                yield NewInput(Path(found.place).name, self._check_label(found.label) or found.values)
            else:
                place, error = found
                reason = str(error)  # of a later row of the series, or of this place
                if reason.startswith(place):
                    reason = f"it{reason.removeprefix(place)}".removeprefix("it: ")
                yield NewInput(Path(place).name, DataError(reason))

    def _check_label(self, label: str) -> DataError | None:
        """The error of a new row whose label is no class of the trained model."""
        names = {label, *as_whole_numbers([label])}  # 2.0 among labels with fractions, else 2
        if not self.plan.classes or label.lower() in MISSING or not names.isdisjoint(self.plan.classes):
            return None
        column = self.form.named(header=False).label
        return DataError(
            f"its field {column} is {label}, which is no class of the run; a table without a header has the labels "
            "there: leave these fields empty, or name the columns"
        )
