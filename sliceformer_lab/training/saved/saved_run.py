"""Reads a run from its folder, for notebooks and analyses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sliceformer_lab.config.checked import RunPlan, check_config
from sliceformer_lab.config.compose import with_conf_folders
from sliceformer_lab.config.schema import allowed_targets
from sliceformer_lab.data.input_files import Given, given_inputs
from sliceformer_lab.data.spec import DataSpec
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
from sliceformer_lab.training.results.prediction_table import read_preprocessing
from sliceformer_lab.training.saved.predictor import Predictor
from sliceformer_lab.training.saved.same_data import check_unchanged, warn_of_other_code

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Run:
    """One run folder; each part is read when it is first used."""

    folder: Path
    allow_targets: Sequence[str] = ()  # packages of the user's own that the run's code may come from
    config_dir: str | Path | None = None  # a folder with options of the user's own

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved configuration, as config.yaml holds it."""
        return read_config(self.folder)

    @cached_property
    def plan(self) -> RunPlan:
        """The checked configuration. Raises ConfigError."""
        with self._users_own():
            return check_config(self.config)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The content of summary.json."""
        return read_summary(self.folder).recorded()

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """All logged metrics, one row per logging step."""
        return read_metrics(self.folder)

    @cached_property
    def predictions(self) -> dict[str, np.ndarray[Any, Any]]:
        """val_ids, val_targets, val_logits and val_places, the same for test, class_names and target_names.

        They belong to the scored checkpoint.
        """
        with np.load(self.folder / PREDICTIONS) as arrays:
            return {name: arrays[name] for name in arrays.files}

    @cached_property
    def data(self) -> DataModule:
        """The data module with its splits, downloaded if need be. Raises DataError if they are not those of the run."""
        data = build_data(self.plan, None if read_preprocessing(self.folder) is None else self.folder)
        check_unchanged(self.folder, data)
        return data

    @cached_property
    def spec(self) -> DataSpec:
        """The sizes of the data: as the run saved them at its end, before that those of the data themselves."""
        saved = read_preprocessing(self.folder)
        return build_data(self.plan).spec if saved is None else saved[0]

    @cached_property
    def model(self) -> TaskModule:
        """The task with the weights of the scored checkpoint, in evaluation mode."""
        with self._users_own():  # a message lists the user's own attentions too
            task = build_task(self.plan, self.spec)
            warn_of_other_code(self.folder)
            load_weights(task, scored_checkpoint(self.plan.selection, self.folder))
        return task.eval()

    @cached_property
    def predictor(self) -> Predictor:
        """Predicts new inputs. Raises LabError if the run cannot."""
        return Predictor.of_run(self.folder, self.plan, self.model)

    def predict(self, contents: Given | Iterable[Given]) -> pd.DataFrame:
        """Predictions for texts or SMILES, or for pictures or clouds as arrays or paths: a row for each, in order.

        A single text, SMILES, path or array is one input. Raises TypeError for anything else.

        The columns are those of the command `predict`. A content that cannot be predicted has its reason in the column
        `error` and no prediction. Pictures are (H, W, 3) or (H, W) uint8, clouds (P, 3 or 6).
        """
        import pandas as pd

        inputs = given_inputs(contents, self.predictor.kind, self.predictor.data.read_file)
        return pd.DataFrame(self.predictor.rows(inputs), columns=list(self.predictor.columns))

    @contextmanager
    def _users_own(self) -> Iterator[None]:
        folders = [] if self.config_dir is None else [self.config_dir]
        with allowed_targets(list(self.allow_targets)), with_conf_folders(folders):
            yield


def load_run(folder: str | Path, allow_targets: Sequence[str] = (), config_dir: str | Path | None = None) -> Run:
    """The run in a folder, finished or not.

    A run of the user's own code is only opened with `allow_targets`, such as ["my_attn."], because a saved
    configuration must not decide what is loaded. `config_dir` is the folder that the run had as --config-dir; only a
    hybrid of the user's own attentions needs it. Raises RunFolderError if it is not a run folder.
    """
    path = Path(folder)
    read_config(path)
    return Run(path, allow_targets, config_dir)
