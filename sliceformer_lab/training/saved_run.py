"""A run read back from its folder, for notebooks and analyses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sliceformer_lab.runs.folder import (
    PREDICTIONS,
    load_weights,
    read_config,
    read_metrics,
    read_summary,
    scored_checkpoint,
)
from sliceformer_lab.training.build import build_data, build_task


@dataclass(frozen=True)
class Run:
    """One run folder, read lazily."""

    folder: Path

    @cached_property
    def config(self) -> dict[str, Any]:
        """Its resolved configuration."""
        return read_config(self.folder)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """summary.json."""
        return read_summary(self.folder)

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """Everything that was logged, a row per step."""
        return read_metrics(self.folder)

    @cached_property
    def predictions(self) -> dict[str, np.ndarray[Any, Any]]:
        """val_ids, val_targets, val_logits and the same of test, from the scored checkpoint."""
        with np.load(self.folder / PREDICTIONS) as arrays:
            return {name: arrays[name] for name in arrays.files}

    @cached_property
    def data(self) -> Any:
        """The data module, not yet prepared: call `prepare_data()` and `setup()`."""
        return build_data(self.config)

    @cached_property
    def model(self) -> Any:
        """The task with the weights of the scored checkpoint, in evaluation mode."""
        task = build_task(self.config, self.data.spec)
        load_weights(task, scored_checkpoint(self.config, self.folder))
        return task.eval()


def load_run(folder: str | Path) -> Run:
    """A finished or running run, for a notebook. Raises RunFolderError if the folder is not a run's."""
    path = Path(folder)
    read_config(path)
    return Run(path)
