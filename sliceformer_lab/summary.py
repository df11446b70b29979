"""summary.json: what a run was, what came out, and on which machine; and the table printed at its end."""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from sliceformer_lab.analysis.published import compare
from sliceformer_lab.errors import LabError
from sliceformer_lab.loggers import run_name, sync_command
from sliceformer_lab.record import SUMMARY, write_json

PACKAGES = ("torch", "torchvision", "pytorch-lightning", "hydra-core", "timm", "numpy")
PICTURES = ("curves.png", "spectrum.png")


class Summary:
    """The record of one run, written when it starts, when it fails and when it ends."""

    def __init__(self, config: Mapping[str, Any], folder: Path) -> None:
        self._folder = folder
        self._started = time.perf_counter()
        nodes = ("task", "data", "encoder", "block", "attention", "optim")
        self.content: dict[str, Any] = {
            "name": run_name(config["names"], folder),
            **config["names"],
            "status": "running",
            "started": datetime.now().astimezone().isoformat(timespec="seconds"),
            "seed": config["seed"],
            "split_seed": config["data"].get("split_seed"),
            "tags": config["tags"],
            "published": config["published"],
            "options": {node: {k: v for k, v in config[node].items() if k != "_target_"} for node in nodes},
            "machine": {"processor": platform.processor() or platform.machine(), "python": platform.python_version()},
            "versions": {package: version(package) for package in PACKAGES},
            "git_commit": _git_commit(),
            "command": sys.argv[1:],
        }

    def update(self, **facts: object) -> None:
        """Add facts and write the file."""
        self.content |= facts
        self.content["wall_seconds"] = round(time.perf_counter() - self._started, 2)
        write_json(self._folder / SUMMARY, self.content)

    def fail(self, error: BaseException) -> None:
        """Record how the run ended, if not well."""
        status = error.status if isinstance(error, LabError) else "failed"
        self.update(status=status, error=f"{type(error).__name__}: {error}")


def print_summary(summary: Mapping[str, Any], folder: Path, notes: list[str]) -> None:
    """The table at the end of a run, the notes under it and where everything lies."""
    console = Console(highlight=False, soft_wrap=True)
    table = Table(title=summary["name"], show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for label, value in _rows(summary):
        table.add_row(label, value)
    table.add_row("run folder", str(folder))
    if pictures := [name for name in PICTURES if (folder / name).is_file()]:
        table.add_row("pictures", ", ".join(pictures))
    if command := sync_command(folder):
        table.add_row("upload to W&B", command)
    console.print(table)
    for note in notes:
        console.print(note)


def end_notes(summary: Mapping[str, Any]) -> list[str]:
    """What to say under the table: the published figure, and a warning if the run has learned nothing."""
    notes = []
    if comparison := compare(summary):
        notes.append(comparison)
    reached = next((v for name, v in summary["metrics"].items() if name.startswith("test/accuracy")), None)
    chance, examples = summary["chance"], summary["protocol"]["num_test"]
    if reached is not None and reached <= chance + 3 * (chance * (1 - chance) / examples) ** 0.5:
        notes.append(
            f"WARNING: test accuracy {reached:.4f} is at chance ({chance:.4f}, always the commonest class): "
            "this run has learned nothing; try more epochs, another optim.lr or a warm-up"
        )
    return notes


def compare_metrics(recorded: Mapping[str, float], again: Mapping[str, float]) -> None:
    """Print recorded figures and those of a second scoring side by side."""
    table = Table("metric", "recorded", "again")
    for name, value in again.items():
        table.add_row(name, f"{recorded[name]:.6f}" if name in recorded else "", f"{value:.6f}")
    Console(highlight=False).print(table)


def _rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    protocol, cost = summary["protocol"], summary["cost_per_sample"]
    rows = [("data", f"{protocol['data']} ({protocol['num_train']:,} training examples)")]
    rows += [(name, f"{value:.4f}") for name, value in summary["metrics"].items() if not name.endswith("loss")]
    best = summary["best"]
    if best["epoch"] is not None:
        rows.append(("scored epoch", f"{best['epoch'] + 1} of {protocol['epochs']} ({protocol['selection']})"))
    rows.append(("parameters", f"{summary['parameters']:,}"))
    rows.append(("multiply-adds", f"{cost['multiply_adds']:,} a sample, {cost['comparisons']:,} comparisons"))
    if summary["samples_per_second"]:
        rows.append(("training speed", f"{summary['samples_per_second']:,.0f} samples/s"))
    rows.append(("peak memory", f"{summary['peak_memory_gb']:.2f} GB"))
    rows.append(("time", f"{summary['wall_seconds']:.0f} s"))
    return rows


def _git_commit() -> str | None:
    here = Path(__file__).parent
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=here,
            capture_output=True,
            text=True,
            timeout=5,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None
