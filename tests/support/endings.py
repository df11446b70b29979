"""Jobs that end as a test wants, without training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sliceformer_lab.config.checked import RunPlan
from sliceformer_lab.data.base import DataModule
from sliceformer_lab.training import run
from sliceformer_lab.training.results.summary import Summary


def train_in_turn(monkeypatch: pytest.MonkeyPatch, *endings: BaseException | None) -> list[Mapping[str, Any]]:
    """Replace training: each job raises the next of `endings` (None: ends well). Returns the jobs' configurations."""
    left = iter(endings)
    trained: list[Mapping[str, Any]] = []

    def train(plan: RunPlan, data: DataModule, folder: Path, summary: Summary) -> None:
        trained.append(plan.plain)
        if (error := next(left)) is not None:
            raise error
        summary.update(status="ok", best={"value": 0.5}, metrics={}, protocol={})

    monkeypatch.setattr(run, "train", train)
    return trained
