"""The scores of single examples, from the predictions that a run has saved."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from sliceformer_lab.errors import RunFolderError
from sliceformer_lab.runs.collect import RunRecord
from sliceformer_lab.runs.folder import PREDICTIONS
from sliceformer_lab.runs.plain_text import one_line

Arrays = dict[str, np.ndarray]
TEXT_ARRAYS = ("test_places", "class_names", "target_names")  # arrays of texts
MAX_HEADER_CHARACTERS = 1_000  # characters
MAX_PREDICTIONS_BYTES = 4 * 2**30  # bytes of the unpacked file


def read_predictions(folder: Path, split: str) -> Arrays | None:
    """The `ids`, `targets` and `logits` of a split, and the arrays of texts; None for a run without predictions.

    Raises RunFolderError for a file that is damaged, or whose arrays do not fit each other.
    """
    file = folder / PREDICTIONS
    if not file.is_file():
        return None
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            if sum(entry.file_size for entry in archive.infolist()) > MAX_PREDICTIONS_BYTES:
                raise ValueError("it unpacks to more than 4 GB")
            if f"{split}_ids.npy" not in names:
                return None
            found = {part: _read_array(archive, f"{split}_{part}.npy") for part in ("ids", "targets", "logits")}
            words = {name: _read_array(archive, f"{name}.npy") for name in TEXT_ARRAYS if f"{name}.npy" in names}
    except Exception as error:  # of zipfile, zlib, numpy and its parser of headers
        raise RunFolderError(f"{file} cannot be read ({type(error).__name__}: {one_line(error)[:200]})") from error
    numbers = all(part.dtype.kind in "biuf" and part.ndim for part in found.values())
    if not numbers or found["ids"].ndim != 1 or len({len(part) for part in found.values()}) != 1:
        raise RunFolderError(f"{file} cannot be read: its ids, targets and logits do not fit each other")
    if "test_places" in words and split == "test" and words["test_places"].shape != found["ids"].shape:
        raise RunFolderError(f"{file} cannot be read: its places do not fit its ids")
    return found | words


def _read_array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """An array of an archive, whose size is compared with its header's before memory is taken. Raises ValueError."""
    with archive.open(name) as file:
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(file, max_header_size=MAX_HEADER_CHARACTERS)
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize > archive.getinfo(name).file_size:
        raise ValueError(f"{name} holds fewer numbers than it says")
    with archive.open(name) as file:
        array: np.ndarray = np.lib.format.read_array(file, allow_pickle=False, max_header_size=MAX_HEADER_CHARACTERS)
    return array


def share_of_splits(runs: Iterable[RunRecord], metric: str) -> float | None:
    """Scored examples per training example of runs that were scored on different splits; None if all are on one."""
    runs = list(runs)
    if len({split_of(run, metric) for run in runs}) <= 1:
        return None
    return runs[0].size_per_train(metric.partition("/")[0])


def split_of(run: RunRecord, metric: str) -> object:
    """The examples that a metric is of. The ids of predictions do not tell: they are places in a split."""
    return run.summary.digests.get(metric.partition("/")[0]) or run.unit[1]


def example_scores(run: RunRecord, metric: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Ids and scores (E,) of single examples whose mean is the metric: accuracy, mean absolute error or mean IoU.

    None for any other metric, without predictions, and if the predictions do not reproduce the recorded value. Raises
    RunFolderError as `read_predictions`.
    """
    split, _, name = metric.removesuffix("_best_test_epoch").partition("/")
    if (found := read_predictions(run.folder, split)) is None:
        return None
    ids, targets, outputs = (found[part] for part in ("ids", "targets", "logits"))
    if name == "accuracy" and targets.ndim == 1 and outputs.ndim == 2:
        scores = (outputs.argmax(axis=1) == targets).astype(np.float64)
    elif name == "mae" and targets.shape == outputs.shape and not np.isnan(targets).any():
        scores = np.abs(outputs.astype(np.float64) - targets).reshape(len(ids), -1).mean(axis=1)
    elif name == "mean_iou" and targets.ndim == 3 and targets.shape == outputs.shape:
        scores = _shares_of_mean_iou(outputs, targets)
    else:
        return None
    order = np.argsort(ids, kind="stable")
    recorded = run.metric(metric)
    agrees = recorded is not None and len(ids) and math.isclose(scores.mean(), recorded, rel_tol=1e-3, abs_tol=1e-6)
    return (ids[order], scores[order]) if agrees else None


def _shares_of_mean_iou(predicted: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """What each mask contributes to the mean IoU of masks (E, H, W), whose pixels below 0 have no class: (E,).

    An IoU is a ratio of sums over all masks, I / U, and no mean. Its linear part in the counts of one mask i is
    I / U + E (I_i - I / U U_i) / U. These have the ratio as their mean, and their spread is that of the delta method.
    """
    known = targets >= 0
    total = np.zeros(len(targets))
    classes = np.union1d(predicted[known], targets[known])
    for one in classes:
        found, true = (predicted == one) & known, (targets == one) & known
        both, either = (pixels.sum(axis=(1, 2), dtype=np.float64) for pixels in (found & true, found | true))
        ratio = both.sum() / either.sum()
        total += ratio + len(targets) * (both - ratio * either) / either.sum()
    return total / len(classes)
