"""What the page shows of single runs: learning curves, test predictions and pictures, all bounded in size."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sliceformer_lab.commands.report.figures.curves import curve_of
from sliceformer_lab.commands.report.table_cells import Section
from sliceformer_lab.errors import RunFolderError
from sliceformer_lab.measures.line_panels import thin_out
from sliceformer_lab.runs.collect import RunRecord
from sliceformer_lab.runs.example_scores import read_predictions
from sliceformer_lab.runs.folder import LAST_PICTURES, pictures_in

CURVE_POINTS = 60_000  # of all runs
MIN_POINTS, MAX_POINTS = 12, 100  # of a curve
MAX_PREDICTIONS = 400_000  # predictions of all runs; a class is two or three bytes of the page, a number six
PICTURE_BYTES = 3_000_000  # of all pictures in the page; further ones are links
MAX_DESCRIBED_EXAMPLES = 200  # of a test set, whose text is in the page
MAX_DESCRIBED_CHARACTERS = 200  # of such a text

Details = dict[str, Any]


def run_details(runs: Sequence[RunRecord], sections: Sequence[Section]) -> tuple[list[Details], list[Details]]:
    """For each run its `curves`, `pictures`, the index `test` of its test set and `answers`; and the test sets."""
    metrics = {run.folder: table.metric for table, found in sections for line in found for run in line.row.runs}
    points = min(MAX_POINTS, max(MIN_POINTS, CURVE_POINTS // max(3 * len(runs), 1)))
    embedded = _embed_pictures(sections)
    tests: dict[str, Details] = {}
    each = max(100, MAX_PREDICTIONS // max(len(runs), 1))
    found = []
    for run in runs:
        metric = metrics.get(run.folder, "")
        details: Details = {
            "metric": metric,
            "curves": _read_curves(run, metric, points),
            "pictures": {file.name: embedded.get((run.name, file.name)) for file in pictures_in(run.folder)},
        }
        found.append(details | _read_answers(run, tests, each))
    for index, test in enumerate(tests.values()):
        scored = [(run, details) for run, details in zip(runs, found, strict=True) if details.get("test") == index]
        _describe_examples(test, [details["answers"] for _, details in scored], scored[0][0])
    return found, list(tests.values())


def _read_curves(run: RunRecord, metric: str, points: int) -> dict[str, Any]:
    """Panel -> epochs and values of the validation metric and both losses."""
    table = curve_of(run, metric.partition("/")[2].removesuffix("_best_test_epoch"))
    curves = {}
    for panel, here in table.groupby("panel", sort=False):
        kept = here[here["x"].isin(thin_out(here["x"].to_numpy(), points))]
        curves[str(panel)] = [[int(x) for x in kept["x"]], [float(f"{value:.4g}") for value in kept["value"]]]
    return curves


def _read_answers(run: RunRecord, tests: dict[str, Details], each: int) -> Details:
    """The test set of a run, which is added to `tests`, and its answers to at most `each` examples of it."""
    try:
        words = read_predictions(run.folder, "test")
    except RunFolderError:  # the row of the run says so
        words = None
    if words is None:
        return {}
    ids, targets, outputs = (words[part] for part in ("ids", "targets", "logits"))
    order = np.argsort(ids, kind="stable")
    ids, targets, outputs = ids[order], targets[order], outputs[order]
    are_labels = np.isin(targets[np.isfinite(targets)], (0, 1)).all()
    if targets.ndim == 1 and targets.dtype.kind in "iu" and outputs.ndim == 2:
        kind, answers = "classes", outputs.argmax(axis=1)
    elif targets.ndim == 2 and targets.shape == outputs.shape and outputs.shape[1] == 1 and not are_labels:
        kind, targets, answers = "numbers", targets[:, 0], outputs[:, 0]
    else:
        return {}
    kept = thin_out(np.arange(len(ids)), each)
    digest = sha256(ids.tobytes() + targets.tobytes()).hexdigest()
    if digest not in tests:
        places = words.get("test_places")
        tests[digest] = {
            "kind": kind,
            "total": len(ids),
            "rows": kept.tolist(),
            "ids": ids[kept].tolist(),
            "targets": _round_values(targets[kept]),
            "names": [str(name) for name in words.get("class_names", [])],
            "places": None if places is None else [str(place) for place in places[order][kept]],
        }
    return {"test": list(tests).index(digest), "answers": _round_values(answers[kept])}


def _round_values(values: NDArray[Any]) -> list[int] | list[float | None]:
    """Whole numbers, or numbers of four digits with None for NaN."""
    if values.dtype.kind in "iu":
        return [int(value) for value in values]
    return [float(f"{value:.4g}") if np.isfinite(value) else None for value in values]


def _describe_examples(test: Details, answers: Sequence[Sequence[Any]], run: RunRecord) -> None:
    """Add the texts or SMILES of the examples on which the runs differ most, where predictions.csv has them."""
    rows = test.pop("rows")
    test["texts"] = {}
    table = np.array(answers, dtype=float)
    spread = table.std(axis=0) if test["kind"] == "numbers" else (table != table[0]).sum(axis=0)
    chosen = [
        int(i) for i in np.argsort(-np.nan_to_num(spread), kind="stable")[:MAX_DESCRIBED_EXAMPLES] if spread[i] > 0
    ]
    try:
        written = pd.read_csv(run.folder / "predictions.csv", dtype=str, keep_default_na=False)
        here = written[written["split"] == "test"]
        texts = here["text" if "text" in here else "smiles"].tolist()
    except (OSError, KeyError, ValueError):
        return
    if len(texts) == test["total"]:
        test["texts"] = {i: str(texts[rows[i]])[:MAX_DESCRIBED_CHARACTERS] for i in chosen}


def _embed_pictures(sections: Sequence[Section]) -> dict[tuple[str, str], str]:
    """(run, picture) -> data URL of the pictures of results, for the first run of each row, while they fit.

    Curves and spectra are links, as the page draws its own.
    """
    found: dict[tuple[str, str], str] = {}
    left = PICTURE_BYTES
    runs = [line.row.runs[0] for _, lines in sections for line in lines if line.row.runs]
    names = {file.name for run in runs for file in pictures_in(run.folder)}.difference(LAST_PICTURES)
    for name in sorted(names):
        for run in runs:
            try:
                content = (run.folder / name).read_bytes()
            except OSError:
                continue
            if len(content) <= left:
                left -= len(content)
                found[run.name, name] = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    return found
