"""Draws the pictures of a finished run: learning curves, and what its test predictions got right and wrong."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from torch import Tensor

from sliceformer_lab.data.splits import Stage
from sliceformer_lab.runs.folder import read_metrics
from sliceformer_lab.training.interfaces import DataModule, TaskModule
from sliceformer_lab.training.results.observers import Observer
from sliceformer_lab.training.results.predicted import ScoredSplit


def draw_pictures(
    folder: Path, task: TaskModule, data: DataModule, predictions: Mapping[str, Mapping[str, Tensor]]
) -> None:
    """Draws the curves of a run and the pictures of its task into the run folder.

    Results are those of the test split, or of the validation split where nothing is tested. A picture that cannot be
    drawn is a warning: it is no reason for a finished run to fail. Raises Interrupted at a signal.
    """
    draw: dict[str, Callable[[Path], None]] = {"curves.png": _curves}
    stages: tuple[Stage, ...] = ("test", "val")
    stage = next((stage for stage in stages if stage in predictions), None)
    if stage is not None and len(predictions[stage]["ids"]):
        ids, targets, outputs = (predictions[stage][name].numpy() for name in ("ids", "targets", "logits"))
        draw |= task.pictures(ScoredSplit(data, stage, ids, targets, outputs))
    for name, drawn in draw.items():
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph")  # a letter that the font lacks is drawn as a box
            Observer(name).run(partial(drawn, folder / name))


def _curves(path: Path) -> None:
    from sliceformer_lab.measures.plots import plot_curves

    plot_curves(read_metrics(path.parent), path)
