"""Reads a run from its folder, for notebooks and analyses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sliceformer_lab.runs.folder import (
    PREDICTIONS,
    load_weights,
    read_config,
    read_metrics,
    read_summary,
    scored_checkpoint,
)
from sliceformer_lab.training.build import build_data, build_task
from sliceformer_lab.training.interfaces import DataModule, TaskModule

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Run:
    """One run folder; each part is read when it is first used."""

    folder: Path

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved configuration."""
        return read_config(self.folder)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The content of summary.json."""
        return read_summary(self.folder)

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """All logged metrics, one row per logging step."""
        return read_metrics(self.folder)

    @cached_property
    def predictions(self) -> dict[str, np.ndarray[Any, Any]]:
        """val_ids, val_targets, val_logits and the same for test, at the scored checkpoint."""
        with np.load(self.folder / PREDICTIONS) as arrays:
            return {name: arrays[name] for name in arrays.files}

    @cached_property
    def data(self) -> DataModule:
        """The data module; call its `prepare_data()` and `setup()` before use."""
        data: DataModule = build_data(self.config)
        return data

    @cached_property
    def model(self) -> TaskModule:
        """The task with the weights of the scored checkpoint, in evaluation mode."""
        task: TaskModule = build_task(self.config, self.data.spec)
        load_weights(task, scored_checkpoint(self.config, self.folder))
        return task.eval()


def load_run(folder: str | Path) -> Run:
    """The run in a folder, finished or not. Raises RunFolderError if it is not a run folder."""
    path = Path(folder)
    read_config(path)
    return Run(path)
