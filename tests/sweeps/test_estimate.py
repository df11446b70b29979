"""The estimate that a sweep prints before it starts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.fake_jobs import fake_measure
from support.runs import SMALL

from sliceformer_lab.cli.run_sweep import measure_job
from sliceformer_lab.runs.names import register_resolvers
from sliceformer_lab.runs.sweep import PlannedJob
from sliceformer_lab.sweeps import fork_server
from sliceformer_lab.sweeps.estimate import estimate_sweep


def jobs(*lines: str) -> list[PlannedJob]:
    return [PlannedJob(str(number), tuple(line.split())) for number, line in enumerate(lines)]


def write_finished(folder: Path, command: str, seconds: float, status: str = "ok") -> None:
    folder.mkdir(parents=True)
    summary = {"format": 1, "task": "digits", "attention": "csp", "status": status}
    summary |= {"command": command.split(), "wall_seconds": seconds}
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "weights").write_bytes(bytes(50_000_000))


def no_measure(words: Sequence[str]) -> tuple[float, int]:
    raise AssertionError(words)


def test_finished_runs_of_the_same_kind_say_what_a_job_costs(tmp_path: Path) -> None:
    write_finished(tmp_path / "a" / "0", "attention=csp seed=5 optim.lr=1 hydra.run.dir=x trainer=gpu", 600)
    write_finished(tmp_path / "a" / "1", "seed=6 attention=csp", 800)
    write_finished(tmp_path / "b", "attention=csp encoder.depth=3", 9000)
    write_finished(tmp_path / "c", "attention=csp", 1, status="failed")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "summary.json").write_text("[")
    (line,) = estimate_sweep(jobs("attention=csp seed=0", "attention=csp seed=1"), tmp_path, 2, no_measure, ())
    assert line.startswith("  about 12 min and 0.1 GB of ") and line.endswith("(1 kinds of jobs from finished runs)")


def test_kinds_without_a_finished_run_are_measured_in_a_process_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_server, "LIBRARIES", ())  # the fake needs none
    write_finished(tmp_path / "a", "attention=csp", 200)
    wanted = jobs("attention=csp", "attention=mha", "attention=mha seed=1", "attention=broken")
    (line,) = estimate_sweep(wanted, tmp_path, 1, fake_measure, ())
    assert line.startswith("  at least 9 min")  # 200 + 100 + 100 and their mean for the broken one
    assert "1 kinds of jobs from finished runs; 1 from a few steps, without start, validation and references; " in line
    assert "1 kinds are not known" in line


def test_few_jobs_and_other_machines_are_not_measured(tmp_path: Path) -> None:
    assert estimate_sweep(jobs("attention=csp"), tmp_path, 1, no_measure, ()) == []
    assert estimate_sweep(jobs(*["attention=csp"] * 9), tmp_path / "not_there", 1, None, ()) == []
    assert estimate_sweep([], tmp_path, 1, no_measure, ()) == []


def test_a_few_steps_say_how_long_all_steps_take() -> None:
    register_resolvers()
    words = [*SMALL, "data.limit_train=200", "optim.epochs=50"]
    seconds, size = measure_job(words)
    again, _ = measure_job([*words, "optim.epochs=500"])
    assert 5 < again / seconds < 20 and size > 1e5
    dry, nothing = measure_job([*words, "debug=fast"])
    assert dry < seconds / 20 and nothing == 0, "one step, and no checkpoint"
