"""Run folders with metrics that a test chooses, for tests of reports."""

from __future__ import annotations

import json
from copy import deepcopy
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from omegaconf import OmegaConf

from sliceformer_lab.config.checked import check_config
from sliceformer_lab.config.compose import compose_job
from sliceformer_lab.runs.files import write_json
from sliceformer_lab.runs.folder import CONFIG, FORMAT, PREDICTIONS, SUMMARY
from sliceformer_lab.runs.run_summary import RunSummary, parse_summary
from sliceformer_lab.training.results.summary import Summary

NODES: dict[str, dict[str, Any]] = {
    "task": {"_target_": "sliceformer_lab.tasks.image.ImageClassification", "pool": "mean"},
    "data": {"root": "data", "batch_size": 64, "num_workers": 0, "split_seed": 0, "augment": "none"},
    "encoder": {"dim": 64, "depth": 4},
    "block": {"norm": "layernorm"},
    "attention": {"group_size": 2, "order": "ascend"},
    "optim": {"lr": 0.002, "epochs": 12},
    "callbacks": {},
    "trainer": {
        "accelerator": "cpu",
        "devices": 1,
        "precision": "32-true",
        "fast_dev_run": False,
        "limit_val_batches": None,
    },
}
CONTENT: dict[str, Any] = {  # the facts that a summary gains when its run finishes
    "status": "ok",
    "protocol": {
        "data": "digits",
        "official": True,
        "sha256": "65e5",
        **{"num_test": 299, "num_val": 299, "num_train": 1199},
        "sequence_length": 16,
        "selection": "best_val",
        **{"epochs": 12, "steps": None, "limit_train": None, "limit_val": None},
    },
    "best": {"epoch": 3, "step": 75, "metric": "val/accuracy", "value": 0.9},
    "metrics": {"val/accuracy": 0.9, "test/accuracy": 0.9, "test/loss": 0.4},
    "chance": 0.1,
    "parameters": 100_000,
    "cost_per_sample": {"multiply_adds": 1_000_000, "comparisons": 0, "moves": 0},
    "samples_per_second": 1000.0,
    "peak_memory_gb": 1.0,
}


def read_summary(folder: Path) -> dict[str, Any]:
    """The content of summary.json as plain values."""
    content: dict[str, Any] = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    return content


def summary_of(content: dict[str, Any]) -> RunSummary:
    """A summary with these facts, and with names where they have none."""
    return parse_summary({"task": "digits", "attention": "csp", "status": "ok"} | content)


@cache
def written_at_the_start() -> dict[str, Any]:
    """The summary.json of a run that has just started, as `Summary` writes it."""
    plan = check_config(compose_job([])).model_copy(update={"plain": NODES})
    with TemporaryDirectory() as folder:
        Summary(plan, Path(folder)).update()
        return read_summary(Path(folder))


def write_run(
    folder: Path, attention: str = "csp", seed: int = 0, accuracy: float | None = 0.9, **changes: Any
) -> Path:
    """Writes the folder of a finished run with this test accuracy, or of a failed run for None.

    `changes` replace keys of the summary; `options={"encoder.depth": 2}` and `protocol={...}` change single entries.
    """
    content = deepcopy(written_at_the_start())
    content |= {"attention": attention, "seed": seed, "name": f"digits/{attention}/{folder.name}"}
    if accuracy is None:
        content |= {"status": "failed", "error": "RuntimeError: out of luck"}
    else:
        content |= deepcopy(CONTENT)
        content["metrics"] = {"val/accuracy": accuracy, "test/accuracy": accuracy, "test/loss": 1 - accuracy}
    for name, value in changes.pop("options", {}).items():
        node, _, option = name.partition(".")
        content["options"].setdefault(node, {})[option] = value
    content.get("protocol", {}).update(changes.pop("protocol", {}))
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / SUMMARY, content | changes)
    OmegaConf.save(OmegaConf.create({"format": FORMAT, "selection": "best_val"}), folder / CONFIG)
    return folder


def write_runs(folder: Path, attention: str, *accuracies: float | None, **changes: Any) -> list[Path]:
    """Writes a run folder for each accuracy, with seeds from 0."""
    return [
        write_run(folder / f"{attention}-{folder.name}-{seed}", attention, seed, accuracy, **deepcopy(changes))
        for seed, accuracy in enumerate(accuracies)
    ]


def write_predictions(folder: Path, correct: np.ndarray, first_id: int = 0) -> None:
    """Writes predictions.npz of a two-class test set; `correct` (E,) says which predictions are right."""
    targets = np.arange(len(correct)) % 2
    logits = np.eye(2, dtype=np.float16)[np.where(correct, targets, 1 - targets)]
    ids = np.arange(len(correct)) + first_id
    np.savez_compressed(folder / PREDICTIONS, test_ids=ids, test_targets=targets, test_logits=logits)
