"""The references of a run: simple models, and the best constant, fitted and scored on the same splits."""

from __future__ import annotations

import hashlib
import json
import math
import pickle
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sliceformer_lab.config.checked import RunPlan
from sliceformer_lab.data.splits import STAGES
from sliceformer_lab.measures.simple_models import SimpleModel
from sliceformer_lab.measures.statistics import jackknife_rows, jackknife_values, student_half_width
from sliceformer_lab.runs.files import whole_bytes, write_json
from sliceformer_lab.training.interfaces import DataModule, TaskModule
from sliceformer_lab.training.results.predicted import PredictedSplits, TableRow

MAX_REFERENCE_EXAMPLES = 10_000  # training examples that a simple model sees; more are a random sample
RULES_VERSION = 4  # counts changes of what a row says, so that a kept row of older rules is not read
REFERENCE_SHARE, MIN_REFERENCE_S = 0.1, 30.0  # of the run's time, and in any case, that each simple model may take
OPTIONS_WITHOUT_EFFECT = (
    "batch_size",
    "eval_batch_size",
    "num_workers",
    "processes",
    "bucket",
    "bucket_share",
    "augment",
    "root",
    "file",
)


def references(
    plan: RunPlan, data: DataModule, task: TaskModule, predictions: PredictedSplits, run_seconds: float
) -> list[TableRow]:
    """A row for the best constant and for each simple model of the task; the strongest model comes last.

    A row has name, metrics (test/accuracy and so on) and seconds, or name and `skipped`, the reason. That of a simple
    model has the `difference` from the run too, and its name says if it saw a part of the training examples only.
    All are scored on every example that the run predicted.
    Each model may take a tenth of the run's time, or half a minute if that is longer; then it is stopped.
    Results are kept in `paths.data`, once per data, split and metrics.

    Raises Interrupted at a signal.
    """
    if not predictions:
        return []
    started = time.monotonic()
    folder = Path(plan.paths.data) / "references"
    count = len(data.splits["train"])
    train = np.sort(np.random.default_rng(0).permutation(count)[:MAX_REFERENCE_EXAMPLES])
    targets = data.splits["train"].targets_at(train.tolist())
    found = task.constant(targets)
    constants = [] if found is None else [_score_constant(*found, task, predictions, started)]
    rows: list[TableRow] = []  # the strongest first
    limit = max(MIN_REFERENCE_S, REFERENCE_SHARE * run_seconds)
    for model in reversed(task.simple_models(data, len(train))):
        file = folder / f"{_identify_row(plan, data, task, model, predictions)}.json"
        with suppress(OSError, ValueError, EOFError):
            row, outputs = json.loads(file.read_text(encoding="utf-8")), np.load(file.with_suffix(".npy"))
            rows.append(row | difference_from(task, predictions, outputs))
            continue
        try:
            row = _fit_model(model, data, task, train, targets, predictions, limit)
        except Exception as error:  # a reference must not end a run
            row = {"name": model.name, "skipped": f"{type(error).__name__}: {error}"}
        outputs = row.pop("test_outputs", None)
        if outputs is not None:
            with suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                with whole_bytes(file.with_suffix(".npy")) as content:
                    np.save(content, outputs)
                write_json(file, row)
            row |= difference_from(task, predictions, outputs)
        rows.append(row)
    if len(train) < count:
        rows = [row | {"name": f"{row['name']} ({len(train):,} of {count:,} examples)"} for row in rows]
    rows.reverse()
    return [*constants, *task.more_references(data, predictions), *rows]


def below_reference(task: TaskModule, metrics: Mapping[str, float], rows: list[TableRow]) -> list[str]:
    """A warning if a reference has a better test score than the run; it marks those that are not shown to be ahead."""
    name = f"test/{task.monitor}"
    sign = 1 if task.monitor_mode == "max" else -1
    scored = [row for row in rows if name in metrics and name in row.get("metrics", {})]
    better = [row for row in scored if sign * (row["metrics"][name] - metrics[name]) > 0]
    if not better:
        return []
    shown = [row.get("difference", {}).get("place", "behind") == "behind" for row in better]
    marks = ["" if is_shown else " (no difference is shown)" for is_shown in shown]
    parts = zip(better, marks, strict=True)
    listed = ", ".join(f"{row['name']} {row['metrics'][name]:.4f}{mark}" for row, mark in parts)
    return [f"the run does not reach the reference: {name} {metrics[name]:.4f}, {listed} on the same split"]


def difference_from(task: TaskModule, predictions: PredictedSplits, theirs: np.ndarray) -> TableRow:
    """The run's test score minus that of outputs (n, ...) for the same examples, in the metric that selects epochs.

    `low` and `high` are the 95 % interval over test examples, by the jackknife. `place` is ahead or behind where the
    interval leaves out 0; this is one run, so it is no verdict on the model. Nothing where the run has no outputs of
    that kind, or the interval is not defined.
    """
    ours = predictions.get("test", {}).get("logits")
    if ours is None or ours.shape != theirs.shape or len(ours) < 2:
        return {}
    targets, others = predictions["test"]["targets"], torch.from_numpy(theirs).float()
    metric = task.build_metrics()[task.monitor]
    metric.distributed_available_fn = bool

    def gain(rows: Tensor) -> float:
        scores = []
        for outputs in (ours.float(), others):
            metric.reset()
            metric.update(outputs[rows], targets[rows])
            scores.append(float(metric.compute()))
        return scores[0] - scores[1]

    value = gain(torch.ones(len(theirs), dtype=torch.bool))
    parts = jackknife_values(value, [gain(rows) for rows in torch.from_numpy(jackknife_rows(len(theirs)))])
    half = float(student_half_width(parts.std(ddof=1), len(parts)))
    low, high = value - half, value + half
    if not math.isfinite(low + high):  # a metric that is not defined without some group, or one example
        return {}
    ahead, behind = (low > 0, high < 0) if task.monitor_mode == "max" else (high < 0, low > 0)
    place = "ahead" if ahead else "behind" if behind else "neither ahead nor behind"
    return {"difference": {"value": value, "low": low, "high": high, "place": place}}


def _score_constant(
    name: str, output: Tensor, task: TaskModule, predictions: PredictedSplits, started: float
) -> TableRow:
    """The row of a constant output (...), fitted since `started`."""
    outputs = {split: output.expand(len(parts["targets"]), *output.shape) for split, parts in predictions.items()}
    return {"name": name, "metrics": _compute_scores(task, outputs, predictions), "seconds": time.monotonic() - started}


def _compute_scores(task: TaskModule, outputs: Mapping[str, Tensor], predictions: PredictedSplits) -> dict[str, float]:
    """The metrics of outputs (n, ...) of all splits, for the examples that a run predicted."""
    found = {split: {"logits": logits, "targets": predictions[split]["targets"]} for split, logits in outputs.items()}
    metrics = task.decided_metrics(found)
    for split, parts in found.items():
        metrics |= scores_of(task, split, parts["logits"], parts["targets"])
    return metrics


def scores_of(task: TaskModule, split: str, outputs: Tensor, targets: Tensor) -> dict[str, float]:
    """The metrics of outputs (n, ...) by their names in a summary, such as test/accuracy."""
    metrics = task.build_metrics()
    for metric in metrics.values():
        metric.distributed_available_fn = bool  # False: only the first process of a distributed run computes references
    metrics.update(outputs, targets)
    return {f"{split}/{name}": float(value) for name, value in metrics.compute().items()}


def _fit_model(
    model: SimpleModel,
    data: DataModule,
    task: TaskModule,
    train: np.ndarray,
    targets: Tensor,
    predictions: PredictedSplits,
    limit: float,
) -> TableRow:
    """The row of one model; `skipped` if it takes more than `limit` seconds."""
    started = time.monotonic()
    deadline = started + limit
    late = {"name": model.name, "skipped": f"it takes longer than {limit:.0f} s"}
    contents: dict[str, list[Any]] = {}
    for stage in STAGES:
        if stage != "train" and stage not in predictions:  # no validation examples
            continue
        rows = train if stage == "train" else predictions[stage]["ids"].numpy()
        contents[stage] = []
        for part in np.array_split(rows, max(1, len(rows) // 500)):
            contents[stage] += [example.content for example in data.examples(stage, part.tolist())]
            if time.monotonic() > deadline:
                return late
    command = [sys.executable, "-m", "sliceformer_lab.measures.simple_models"]
    message = pickle.dumps((model, contents.pop("train"), targets.numpy(), contents))
    try:
        done = subprocess.run(
            command, input=message, capture_output=True, timeout=max(0.0, deadline - time.monotonic())
        )
    except subprocess.TimeoutExpired:
        return late
    if done.returncode:
        return {"name": model.name, "skipped": done.stderr.decode(errors="replace").strip().rpartition("\n")[2]}
    arrays: dict[str, np.ndarray] = pickle.loads(done.stdout)  # from our own child process
    outputs = {split: torch.from_numpy(array) for split, array in arrays.items()}
    outputs = {split: each.float() if each.is_floating_point() else each for split, each in outputs.items()}
    return {
        "name": model.name,
        "metrics": _compute_scores(task, outputs, predictions),
        "seconds": round(time.monotonic() - started, 2),
        "num_train": len(train),
        "test_outputs": None if "test" not in outputs else outputs["test"].numpy(),
    }


def _identify_row(
    plan: RunPlan, data: DataModule, task: TaskModule, model: SimpleModel, predictions: PredictedSplits
) -> str:
    """Identifies a model's row: data, split, targets, metrics, and how many examples were scored."""
    options = {name: value for name, value in plan.data.options.items() if name not in OPTIONS_WITHOUT_EFFECT}
    facts = [
        model.name,
        data.fingerprint()["sha256"],
        options,
        sorted(map(str, task.build_metrics())),
        data.sizes(),
        {split: len(parts["ids"]) for split, parts in predictions.items()},
        RULES_VERSION,
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:16]
