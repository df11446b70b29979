"""What docs/wandb.md shows works: its commands, and a sweep of W&B whose agent calls our command line."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import wandb
import yaml
from support.runs import SMALL
from support.wandb_server import wandb_server

from sliceformer_lab.__main__ import main

ROOT = Path(__file__).parents[2]
QUICK = ("encoder.depth=1", "optim.epochs=1", "data.limit_train=64", *SMALL[2:5], "encoder=tiny")


def commands() -> list[list[str]]:
    """The words of each command of the page that is ours."""
    page = (ROOT / "docs" / "wandb.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    lines = [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]
    return [words[3:] for words in lines if words[:3] == ["python", "-m", "sliceformer_lab"]]


@pytest.mark.parametrize("offline", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_commands_of_the_page_work(offline: bool, tmp_path: Path) -> None:
    first, *others = commands()
    assert first[0] == "-m" and [words[:2] for words in others[-2:]] == [["report", NAME], ["wandb", "report"]]
    sweep = tmp_path / "sweep"
    with wandb_server() as server:
        own = (*QUICK, f"logger.offline={str(offline).lower()}", f"hydra.sweep.dir={sweep}")
        assert main([*(word for word in first if not word.startswith("seed=")), *own]) == 0
        assert len(server.runs_of("train")) == (0 if offline else 3)
        for words in others:
            place = [] if words[0] == "report" else [f"paths.outputs={tmp_path}"]
            assert main([str(sweep) if word == NAME else word for word in words] + place) == 0, words
        assert [view["type"] for view in server.views] == ["project-view", "project-view", "runs"]


NAME = "outputs/sweeps/NAME"


def test_an_agent_of_a_wandb_sweep_gets_its_trial_as_a_run_of_that_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = yaml.safe_load((ROOT / "examples" / "wandb_sweep.yaml").read_text())
    trial = {"attention": "csp", "optim.lr": 0.004, "seed": 1}
    assert trial.keys() == config["parameters"].keys()
    program, module, *words = config["command"][1:]
    assert (program, module, words[0]) == ("python", "-m", "sliceformer_lab")
    with wandb_server() as server:
        sweep = wandb.sweep(config, project="p")
        assert server.sweeps[0]["metric"] == {"name": "val/accuracy", "goal": "maximize"}
        monkeypatch.setenv("WANDB_SWEEP_ID", sweep)
        monkeypatch.setenv("WANDB_RUN_ID", "chosen1")
        wandb.teardown()  # an agent starts a process, which reads these variables first
        given = [f"{name}={value}" for name, value in trial.items()]  # ${args_no_hyphens}
        words = [word for one in words[1:] for word in (given if one == "${args_no_hyphens}" else [one])]
        assert main([*words, *QUICK, f"hydra.run.dir={tmp_path / 'run'}"]) == 0
    (run,) = server.runs.values()
    assert run.id == "chosen1" and run.facts["sweep"] == sweep and run.exit_code == 0
    assert run.config["optim"]["lr"] == 0.004 and "test/accuracy" not in run.summary
    assert run.summary["val/accuracy"] >= 0
