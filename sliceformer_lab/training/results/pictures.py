"""Draws the pictures of a finished run: learning curves, and what its test predictions got right and wrong."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sliceformer_lab.runs.folder import read_metrics
from sliceformer_lab.training.results.observers import Observer

if TYPE_CHECKING:  # the report reads PICTURES and needs no Lightning
    from torch import Tensor

    from sliceformer_lab.data.splits import Stage
    from sliceformer_lab.training.interfaces import DataModule

    ResultPicture = Callable[[DataModule, Stage, Mapping[str, NDArray[Any]], Path], None]

PICTURES = ("confusion.png", "roc.png", "predicted.png", "mistakes.png", "masks.png", "curves.png", "spectrum.png")
MOST_MISTAKES, MOST_MASKS = 12, 5

Arrays = Mapping[str, NDArray[Any]]


def draw_pictures(folder: Path, data: DataModule, predictions: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Draws PICTURES (but spectrum.png, which its callback draws) into the run folder.

    Results are those of the test split, or of the validation split where nothing is tested. A picture that cannot be
    drawn is a warning: it is no reason for a finished run to fail. Raises Interrupted at a signal.
    """
    draw: dict[str, Callable[[Path], None]] = {"curves.png": _curves}
    stage: Stage | None = next((stage for stage in ("test", "val") if stage in predictions), None)
    if stage is not None:
        arrays = {name: values.numpy() for name, values in predictions[stage].items()}
        draw |= {name: partial(drawn, data, stage, arrays) for name, drawn in _result_pictures(arrays).items()}
    for name, drawn in draw.items():
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph")  # a letter that the font lacks is drawn as a box
            Observer(name).run(partial(drawn, folder / name))


def _result_pictures(arrays: Arrays) -> dict[str, ResultPicture]:
    """The pictures that make sense for these predictions; none for parts of shapes, which are many for an example."""
    targets, outputs = arrays["targets"], arrays["logits"]
    if not len(targets):
        return {}
    if is_class_per_example(targets, outputs):
        return {"confusion.png": _confusion, "mistakes.png": _wrong_classes}
    if targets.ndim == 3 and targets.shape == outputs.shape:
        return {"masks.png": _masks}
    if targets.ndim == 2 and targets.shape == outputs.shape and targets.dtype.kind == "f":
        if is_labels(targets):
            return {"roc.png": _roc}
        return {"predicted.png": _predicted, "mistakes.png": _wrong_numbers}
    return {}


def is_class_per_example(targets: NDArray[Any], outputs: NDArray[Any]) -> bool:
    """Whether targets are classes (n,) and outputs logits (n, K)."""
    return targets.ndim == 1 and targets.dtype.kind in "iu" and outputs.ndim == 2


def is_labels(targets: NDArray[Any]) -> bool:
    """Whether all known targets are 0 or 1: labels that are true or false."""
    known = targets[np.isfinite(targets)]
    return bool(np.isin(known, (0, 1)).all())


def _curves(path: Path) -> None:
    from sliceformer_lab.measures.plots import plot_curves

    plot_curves(read_metrics(path.parent), path)


def _confusion(data: DataModule, stage: Stage, arrays: Arrays, path: Path) -> None:
    from sliceformer_lab.measures.result_plots import plot_confusion

    targets, outputs = arrays["targets"], arrays["logits"]
    correct = float((outputs.argmax(axis=1) == targets).mean())
    title = f"{_split(stage)}: accuracy {100 * correct:.1f} %, {len(targets):,} examples"
    plot_confusion(targets, outputs, _names(data.class_names(), outputs.shape[1]), path, title)


def _roc(data: DataModule, stage: Stage, arrays: Arrays, path: Path) -> None:
    from sliceformer_lab.measures.result_plots import plot_roc

    targets, outputs = arrays["targets"], arrays["logits"]
    title = f"{_split(stage)}, {len(targets):,} examples"
    plot_roc(targets, outputs, _names(data.target_names(), outputs.shape[1]), path, title)


def _predicted(data: DataModule, stage: Stage, arrays: Arrays, path: Path) -> None:
    from sliceformer_lab.measures.result_plots import plot_predicted

    targets, outputs = arrays["targets"], arrays["logits"]
    title = f"{_split(stage)}, {len(targets):,} examples"
    plot_predicted(targets, outputs, _names(data.target_names(), outputs.shape[1]), path, title)


def _wrong_classes(data: DataModule, stage: Stage, arrays: Arrays, path: Path) -> None:
    """The wrong answers that the model was surest of; no picture if all are right."""
    from sliceformer_lab.measures.result_plots import Mistake, plot_mistakes

    targets, logits = arrays["targets"], arrays["logits"].astype(np.float64)
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances, answers = odds.max(axis=1) / odds.sum(axis=1), logits.argmax(axis=1)
    wrong = np.flatnonzero(answers != targets)
    worst = wrong[np.argsort(-chances[wrong], kind="stable")][:MOST_MISTAKES]
    if not len(worst):
        path.unlink(missing_ok=True)
        return
    names = _names(data.class_names(), logits.shape[1])
    found = data.examples(stage, arrays["ids"][worst].tolist())
    mistakes = [
        Mistake(example.place, example.content, names[targets[i]], f"predicted: {names[answers[i]]} ({chances[i]:.0%})")
        for i, example in zip(worst, found, strict=True)
    ]
    title = f"{_split(stage)}: the {len(worst)} surest of {len(wrong):,} wrong answers to {len(targets):,} examples"
    plot_mistakes(mistakes, data.content_kind, path, title)


def _wrong_numbers(data: DataModule, stage: Stage, arrays: Arrays, path: Path) -> None:
    """The largest errors; of several targets the largest error in units of the target's deviation counts."""
    from sliceformer_lab.measures.result_plots import Mistake, plot_mistakes

    targets, outputs = arrays["targets"].astype(np.float64), arrays["logits"].astype(np.float64)
    deviation = np.nanstd(targets, axis=0)
    errors = np.nan_to_num(np.abs(outputs - targets) / np.where(deviation > 0, deviation, 1))
    worst = np.argsort(-errors.max(axis=1), kind="stable")[:MOST_MISTAKES]
    names = _names(data.target_names(), outputs.shape[1])
    found = data.examples(stage, arrays["ids"][worst].tolist())
    mistakes = []
    for i, example in zip(worst, found, strict=True):
        target = int(errors[i].argmax())
        name = f"{names[target]} " if len(names) > 1 else ""
        truth, answer = targets[i, target], outputs[i, target]
        mistakes.append(Mistake(example.place, example.content, f"{name}{truth:.4g}", f"predicted: {answer:.4g}"))
    title = f"{_split(stage)}: the {len(worst)} largest errors of {len(targets):,} examples"
    plot_mistakes(mistakes, data.content_kind, path, title)


def _masks(data: DataModule, stage: Stage, arrays: Arrays, path: Path) -> None:
    """Image, true and predicted mask of some examples, evenly from the worst to the best."""
    from sliceformer_lab.measures.mask_plots import Segmented, plot_masks

    targets, outputs = arrays["targets"], arrays["logits"].astype(np.int64)
    known = (targets >= 0).sum(axis=(1, 2))
    right = (targets == outputs).sum(axis=(1, 2)) / np.maximum(known, 1)
    scored = np.flatnonzero(known)
    order = scored[np.argsort(right[scored], kind="stable")]
    if not len(order):
        return
    chosen = order[np.unique(np.linspace(0, len(order) - 1, MOST_MASKS).round().astype(int))]
    found = data.examples(stage, arrays["ids"][chosen].tolist())
    shown = [
        Segmented(example.place, np.asarray(example.content), targets[i], outputs[i], f"{right[i]:.0%} of pixels right")
        for i, example in zip(chosen, found, strict=True)
    ]
    total = (targets == outputs).sum() / known.sum()
    title = (
        f"{_split(stage)}: {100 * total:.1f} % of the pixels of {len(targets):,} images are right; "
        f"{len(shown)}, worst to best"
    )
    plot_masks(shown, _names(data.class_names(), data.spec.num_classes), path, title)


def _split(stage: Stage) -> str:
    return {"test": "test data", "val": "validation data"}.get(stage, stage)


def _names(names: tuple[str, ...], count: int) -> tuple[str, ...]:
    """The names, or numbers where the data have none or others."""
    return names if len(names) == count else tuple(map(str, range(count)))
