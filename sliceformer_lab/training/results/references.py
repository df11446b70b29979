"""The references of a run: simple models, and the best constant, fitted and scored on the same splits."""

from __future__ import annotations

import hashlib
import json
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
from sliceformer_lab.data.images.pixel_classes import commonest
from sliceformer_lab.data.sequences.characters import TextWindows
from sliceformer_lab.data.splits import Stage
from sliceformer_lab.measures import simple_models
from sliceformer_lab.measures.ngram import ngram_bits
from sliceformer_lab.measures.simple_models import SimpleModel
from sliceformer_lab.runs.files import write_json
from sliceformer_lab.training.interfaces import DataModule, TaskModule

MOST = 10_000  # examples of a split that a simple model sees
SHARE, LEAST_SECONDS = 0.1, 30.0  # of the run's time, and in any case, that each simple model may take
LONGEST_NGRAM = 7  # tokens
CONSTANTS = {
    "classes": "commonest class",
    "labels": "label frequencies",
    "numbers": "training mean",
    "pixels": "commonest class at each pixel",
}
APART = (
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

Row = dict[str, Any]  # name, metrics (test/accuracy and so on), seconds; or name and skipped, the reason
Predictions = Mapping[str, Mapping[str, Tensor]]


def references(
    plan: RunPlan, data: DataModule, task: TaskModule, predictions: Predictions, run_seconds: float
) -> list[Row]:
    """A row for the best constant and for each simple model that suits the data; the strongest model comes last.

    Each model may take a tenth of the run's time, or half a minute if that is longer; then it is stopped.
    Results are kept in `paths.data`, once per data, split and kind of target. A model that fails has a row with the
    reason. Next tokens have n-grams as references.

    Raises Interrupted at a signal.
    """
    if task.goal is None or not predictions:
        return []
    if task.goal == "next tokens":
        return _ngrams(data, task, predictions)
    folder = Path(plan.paths.data) / "references"
    train = np.arange(min(MOST, len(data.splits["train"])))
    targets = data.splits["train"].targets_at(train.tolist())
    scored: dict[Stage, Tensor] = {
        split: predictions[split]["ids"][:MOST] for split in ("val", "test") if split in predictions
    }
    rows: list[Row] = []  # the strongest first
    limit = max(LEAST_SECONDS, SHARE * run_seconds)
    kind = _kind(data, task)
    for model in reversed(simple_models.simple_models(kind, len(train)) if kind else []):
        file = folder / f"{_key(plan, data, task, model)}.json"
        with suppress(OSError, ValueError):
            rows.append(json.loads(file.read_text(encoding="utf-8")))
            continue
        try:
            row = _fitted(model, data, task, train, targets, scored, predictions, limit)
        except Exception as error:  # a reference must not end a run
            row = {"name": model.name, "skipped": f"{type(error).__name__}: {error}"}
        if "metrics" in row:
            with suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                write_json(file, row)
        rows.append(row)
    return [_constant(task, targets, predictions), *reversed(rows)]


def _kind(data: DataModule, task: TaskModule) -> str | None:
    """The kind of simple models that suit the data."""
    return "pixels" if task.goal == "pixels" else data.content_kind


def _ngrams(data: DataModule, task: TaskModule, predictions: Predictions) -> list[Row]:
    """Rows of the tokens' frequencies, of bigrams, and of the n-grams with the best validation score."""
    train = data.splits["train"]
    if not isinstance(train, TextWindows):
        return []
    started = time.monotonic()
    bits: dict[str, list[Tensor]] = {}
    for split, parts in predictions.items():
        batch = data.splits[split].batch(parts["ids"][:MOST].tolist())  # type: ignore[index]
        windows = torch.cat([batch.inputs[:, :1], batch.target], dim=1).numpy()
        found = ngram_bits(train.seen, windows, task.data_spec.vocab_size, LONGEST_NGRAM)
        bits[split] = [torch.from_numpy(each) for each in found]
    seconds = round(time.monotonic() - started, 2)
    means = [float(each.mean()) for each in bits.get("val", bits["test"])]
    best = means.index(min(means))
    names = {0: "token frequencies", 1: "bigrams", best: f"n-grams of {best + 1} tokens"}
    return [
        {
            "name": name,
            "metrics": {
                key: value
                for split, each in bits.items()
                for key, value in _scores(task, split, each[place], predictions[split]["targets"][:MOST]).items()
            },
            "seconds": seconds,
            "num_train": len(train.seen),
        }
        for place, name in names.items()
        if place < len(means)
    ]


def below_reference(task: TaskModule, metrics: Mapping[str, float], rows: list[Row]) -> list[str]:
    """A warning if a reference has a better test score than the run."""
    name = f"test/{task.monitor}"
    sign = 1 if task.monitor_mode == "max" else -1
    scores = {row["name"]: row["metrics"][name] for row in rows if name in row.get("metrics", {})}
    better = {model: score for model, score in scores.items() if name in metrics and sign * (score - metrics[name]) > 0}
    if not better:
        return []
    listed = ", ".join(f"{model} {score:.4f}" for model, score in better.items())
    return [f"the run is below the reference: {name} {metrics[name]:.4f}, {listed} on the same split"]


def _constant(task: TaskModule, targets: Tensor, predictions: Predictions) -> Row:
    started = time.monotonic()
    if task.goal == "classes":
        counts = targets.bincount(minlength=task.data_spec.num_classes).float()
        output = (counts / counts.sum()).clamp_min(1e-9).log()
    elif task.goal == "pixels":
        output = commonest(targets)
    else:
        mean = targets.double().nanmean(dim=0).float()
        output = mean if task.goal == "numbers" else mean.logit(eps=1e-6)
    metrics: dict[str, float] = {}
    for split, parts in predictions.items():
        outputs = output.expand(len(parts["targets"]), *output.shape)
        metrics |= _scores(task, split, outputs, parts["targets"])
    return {"name": CONSTANTS[str(task.goal)], "metrics": metrics, "seconds": time.monotonic() - started}


def _scores(task: TaskModule, split: str, outputs: Tensor, targets: Tensor) -> dict[str, float]:
    metrics = task.build_metrics()
    for metric in metrics.values():
        metric.distributed_available_fn = bool  # False: only the first process of a distributed run computes references
    metrics.update(outputs, targets)
    return {f"{split}/{name}": float(value) for name, value in metrics.compute().items()}


def _fitted(
    model: SimpleModel,
    data: DataModule,
    task: TaskModule,
    train: np.ndarray,
    targets: Tensor,
    scored: Mapping[Stage, Tensor],
    predictions: Predictions,
    limit: float,
) -> Row:
    """The row of one model; `skipped` if it takes more than `limit` seconds."""
    started = time.monotonic()
    deadline = started + limit
    late = {"name": model.name, "skipped": f"it takes longer than {limit:.0f} s"}
    contents: dict[str, list[Any]] = {}
    for stage, rows in {"train": train, **{split: ids.numpy() for split, ids in scored.items()}}.items():
        contents[stage] = []
        for part in np.array_split(rows, max(1, len(rows) // 500)):
            contents[stage] += [example.content for example in data.examples(stage, part.tolist())]
            if time.monotonic() > deadline:
                return late
    job = (model.name, _kind(data, task), contents.pop("train"), targets.numpy(), contents, task.goal)
    command = [sys.executable, "-m", "sliceformer_lab.measures.simple_models"]
    message = pickle.dumps((*job, task.data_spec.num_classes))
    try:
        done = subprocess.run(
            command, input=message, capture_output=True, timeout=max(0.0, deadline - time.monotonic())
        )
    except subprocess.TimeoutExpired:
        return late
    if done.returncode:
        return {"name": model.name, "skipped": done.stderr.decode(errors="replace").strip().rpartition("\n")[2]}
    outputs: dict[str, np.ndarray] = pickle.loads(done.stdout)  # from our own child process
    metrics: dict[str, float] = {}
    for split, logits in outputs.items():
        found = torch.from_numpy(logits)
        found = found.float() if found.is_floating_point() else found
        metrics |= _scores(task, split, found, predictions[split]["targets"][:MOST])
    return {
        "name": model.name,
        "metrics": metrics,
        "seconds": round(time.monotonic() - started, 2),
        "num_train": len(train),
    }


def _key(plan: RunPlan, data: DataModule, task: TaskModule, model: SimpleModel) -> str:
    """Identifies a model's row: data, split, targets and metrics."""
    options = {name: value for name, value in plan.data.options.items() if name not in APART}
    facts = [
        model.name,
        data.fingerprint()["sha256"],
        options,
        task.goal,
        sorted(map(str, task.build_metrics())),
        data.sizes(),
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:16]
