"""Writes a run's metrics to CSV: whole rows or nothing, also on a full disk."""

from __future__ import annotations

import csv
import logging
import os
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.loggers.csv_logs import ExperimentWriter

from sliceformer_lab.runs.files import whole_file
from sliceformer_lab.training.results.observers import log_traceback

log = logging.getLogger(__name__)


class WholeRows(ExperimentWriter):
    """Lightning's writer of metrics.csv, but a failed write keeps the rows of the file and is tried again.

    Lightning's own writer empties the file to add a column, and leaves half a row on a full disk.
    """

    _header: list[str] | None = None  # of the file
    _warned = False

    def save(self) -> None:
        """Appends the rows since the last call. At the first failure it warns; it tries again at the next call."""
        if not self.metrics:
            return
        try:
            self._append(Path(self.metrics_file_path))
        except OSError as error:
            if not self._warned:
                log.warning(
                    f"{self.metrics_file_path} cannot be written now ({error}); the run goes on and tries again"
                )
                log_traceback(error)
            self._warned = True
        else:
            self.metrics = []

    def _append(self, path: Path) -> None:
        self._record_new_keys()
        if self._header != self.metrics_keys:
            _write_header(path, self.metrics_keys)
            self._header = list(self.metrics_keys)
        size = path.stat().st_size
        try:
            with path.open("a", encoding="utf-8", newline="") as file:
                csv.DictWriter(file, self.metrics_keys).writerows(self.metrics)
        except OSError:
            os.truncate(path, size)
            raise


def _write_header(path: Path, columns: list[str]) -> None:
    """Writes the columns, and below them the rows that the file has. It does not change if that fails."""
    rows: list[dict[str, Any]] = []
    if path.is_file():
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    with whole_file(path) as unfinished, unfinished.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)


class MetricsFile(CSVLogger):
    """Writes FOLDER/csv/version_N/metrics.csv; every start of the run, resumed ones included, is a version."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, name="csv")

    @property
    def experiment(self) -> Any:
        """The writer, made at the first use."""
        if self._experiment is None:
            self._experiment = WholeRows(log_dir=self.log_dir)
        return self._experiment
