"""What docs/wandb.md shows works: its commands, and a sweep of W&B whose agent calls our command line."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.runs import SMALL
from support.wandb_server import wandb_server

from sliceformer_lab.__main__ import main

ROOT = Path(__file__).parents[2]
QUICK = ("encoder.depth=1", "optim.epochs=1", "data.limit_train=64", *SMALL[3:6], "encoder=tiny")


def commands() -> list[list[str]]:
    """The words of each command of the page that is ours and of W&B."""
    page = (ROOT / "docs" / "wandb.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    lines = [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]
    ours = [words[3:] for words in lines if words[:3] == ["python", "-m", "sliceformer_lab"]]
    return [words for words in ours if "logger=trackio" not in words]


def without_seeds(words: list[str]) -> list[str]:
    """A command whose sweep has one run of each attention."""
    return [word for word in words if not word.startswith("seed=")]


@pytest.mark.parametrize("offline", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_commands_of_the_page_work(offline: bool, tmp_path: Path) -> None:
    first, *others = commands()
    assert first[0] == "-m" and [words[:2] for words in others[-2:]] == [["report", NAME], ["wandb", "report"]]
    sweep = tmp_path / "sweep"
    with wandb_server() as server:
        own = (*QUICK, f"logger.offline={str(offline).lower()}", f"hydra.sweep.dir={sweep}")
        assert main([*without_seeds(first), *own]) == 0
        assert len(server.runs_of("train")) == (0 if offline else 3)
        for words in map(without_seeds, others):
            place = [] if words[0] == "report" else [f"paths.outputs={tmp_path}"]
            place += QUICK if words[0] == "-m" else []
            assert main([str(sweep) if word == NAME else word for word in words] + place) == 0, words
        assert [view["type"] for view in server.views] == ["project-view", "project-view", "runs"]


NAME = "outputs/sweeps/NAME"


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
