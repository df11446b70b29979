"""A sweep of W&B whose agent calls our command line, as docs/wandb.md shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.runs import SMALL
from support.wandb_server import wandb_server

ROOT = Path(__file__).parents[2]
QUICK = ("encoder.depth=1", "optim.epochs=1", "data.limit_train=64", *SMALL[3:6], "encoder=tiny")


@pytest.mark.slow
def test_an_agent_of_a_wandb_sweep_runs_its_trials_as_runs_of_that_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = yaml.safe_load((ROOT / "examples" / "wandb_sweep.yaml").read_text())
    trials = [
        {"attention": "csp", "optim.lr": 0.004, "seed": 1},
        {"attention": "identity", "optim.lr": 0.002, "seed": 0},
    ]
    assert all(trial.keys() == config["parameters"].keys() for trial in trials)
    config["command"][-1:-1] = QUICK
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    with wandb_server() as server:
        server.trials = list(trials)
        said = in_process(tmp_path, "sweep", "sweep.yaml")
        in_process(tmp_path, *said[said.index("with:") + 2 :][:2])  # "Run sweep agent with: wandb agent ID"
    assert server.sweeps[0]["metric"] == {"name": "val/accuracy", "goal": "maximize"}
    assert [run.facts["displayName"] for run in server.runs_of("train")] == [
        "csp, seed 1 (digits)",
        "identity, seed 0 (digits)",
    ]
    for run, trial in zip(server.runs_of("train"), trials, strict=True):
        assert run.id.startswith("trial") and run.facts["sweep"] == "sweep1" and run.exit_code == 0
        assert run.config["optim"]["lr"] == trial["optim.lr"] and "test/accuracy" not in run.summary
        assert run.summary["val/accuracy"] >= 0


def in_process(folder: Path, *words: str) -> list[str]:
    """What a command of W&B prints, as words."""
    command = [sys.executable, "-m", "wandb", *words]
    done = subprocess.run(command, check=True, cwd=folder, capture_output=True, text=True)
    return (done.stdout + done.stderr).split()
