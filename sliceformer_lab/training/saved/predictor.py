"""Predictions of a trained model for new inputs, from nothing but the run folder."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

import torch

from sliceformer_lab.config.checked import RunPlan
from sliceformer_lab.data.spec import Content, ContentKind, DataSpec, NewInput
from sliceformer_lab.errors import DataError, LabError, RunFolderError
from sliceformer_lab.runs.sweep import resume_word
from sliceformer_lab.training.build import build_data
from sliceformer_lab.training.interfaces import DataModule, TaskModule
from sliceformer_lab.training.results.predicted import Names, TableRow
from sliceformer_lab.training.results.prediction_table import read_preprocessing
from sliceformer_lab.training.saved.same_data import check_saved_encoder

log = logging.getLogger(__name__)

INPUTS_PER_SORT = 2_048  # inputs of different lengths that are sorted by length at a time


@dataclass(frozen=True)
class Predictor:
    """A trained model with what encodes new inputs and names its outputs."""

    task: TaskModule  # with its trained weights, in evaluation mode
    data: DataModule
    spec: DataSpec
    names: Names
    kind: ContentKind  # what the model reads

    @classmethod
    def of_run(cls, folder: Path, plan: RunPlan, task: TaskModule) -> Predictor:
        """The predictor of a run whose trained task is `task`.

        Raises RunFolderError if the run did not save how to encode inputs, LabError if its data have no raw inputs, and
        DataError if the encoder in the folder is not that of its checkpoint.
        """
        saved = read_preprocessing(folder)
        data = build_data(plan, folder, () if saved is None else saved[1].classes)
        kind = data.content_kind if data.takes_new else None
        if kind is None or (saved is not None and not task.columns(saved[1])):
            raise LabError(
                f"a model trained on {data.title} predicts no new inputs; models of texts, SMILES, pictures, clouds "
                "and series with classes or numbers do, and those of masks"
            )
        if saved is None:
            raise RunFolderError(
                f"{folder} does not say how to encode new inputs: the run has not ended, or its file is gone; "
                f"mode=eval {resume_word(folder)} adds it if the data are still there"
            )
        check_saved_encoder(folder, data)
        return cls(task, data, *saved, kind)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the rows."""
        return ("place", *self._content_column, *self.task.columns(self.names), "error")

    @property
    def _content_column(self) -> tuple[str, ...]:
        return (self.kind,) if self.kind in ("text", "smiles") else ()

    def read(self, path: Path, column: str | None) -> Iterator[NewInput]:
        """The inputs in a file or folder; of a table, in `column` or the one that the run was trained on."""
        return self.data.read_inputs(path, column)

    def rows(self, inputs: Iterable[NewInput]) -> Iterator[TableRow]:
        """A row for each input, in their order; one that cannot be predicted has an `error` and no prediction."""
        rest, size = iter(inputs), self.data.eval_batch_size
        cut: list[str] = []  # the places of inputs that are longer than what the model reads
        while pool := list(islice(rest, max(INPUTS_PER_SORT, size) if self.spec.ragged else size)):
            yield from self._predict_pool(pool, size, cut)
        if cut:
            log.warning(f"WARNING: inputs longer than what the model reads were cut: {len(cut):,}, the first {cut[0]}")

    def _predict_pool(self, pool: Sequence[NewInput], size: int, cut: list[str]) -> list[TableRow]:
        rows: list[TableRow] = []
        encoded: dict[int, Any] = {}
        for number, one in enumerate(pool):
            row: TableRow = {"place": one.place, **dict.fromkeys(self._content_column, one.content)}
            try:
                if isinstance(one.content, DataError):
                    raise one.content
                encoded[number] = self.data.encode_one(one.content)
                if self.data.is_cut(one.content, encoded[number]):
                    cut.append(one.place)
            except DataError as error:
                row = {"place": one.place, "error": str(error)}
            rows.append(row)
        by_length = sorted(encoded, key=lambda number: len(encoded[number]))
        for start in range(0, len(by_length), size):
            some = by_length[start : start + size]
            for number, outcome in zip(some, self._format_outcomes([encoded[number] for number in some]), strict=True):
                rows[number] |= self.task.at_input_size(outcome, cast(Content, pool[number].content))
        return rows

    def _format_outcomes(self, encoded: Sequence[Any]) -> list[TableRow]:
        with torch.inference_mode():
            outputs = self.task.predicted(self.data.collate(encoded).to(self.task.device))
        return self.task.outcomes(outputs.cpu(), self.names)
