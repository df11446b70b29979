"""The dashboard's command line: its help, and its one job. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from sliceformer_lab.cli import Command
from sliceformer_lab.compose import CONF_DIR
from sliceformer_lab.config import construct
from sliceformer_lab.dashboard.options import DashboardOptions
from sliceformer_lab.jobs import resolved

CONFIG_NAME = "dashboard"
EXAMPLES = {
    "": "a workspace for all runs of the project sliceformer_lab",
    "entity=my-team project=ranks": "for a project of a team",
    "group=2026-11-20_16-49-13-969447": "for the runs of a sweep",
    "metric=test/mae curve=val/mae": "for a task with another metric",
}


def help_text() -> str:
    """Example commands, what is saved, and every option with its default."""
    program = "python -m sliceformer_lab.dashboard"
    file = (CONF_DIR / f"{CONFIG_NAME}.yaml").read_text(encoding="utf-8")
    options = [line.partition(" # ")[::2] for line in file.splitlines() if line and line[0].isalpha() and " # " in line]
    sections = {
        "Examples": {f"{program} {words}".strip(): said for words, said in EXAMPLES.items()},
        "Options, and what they are by default": dict(options),
    }
    lines = [
        "Save a workspace on Weights & Biases: panels that compare the runs of a project.",
        "It needs a key (WANDB_API_KEY, or `wandb login`), the network, and pip install 'sliceformer-lab[dashboard]'.",
        *("", f"usage: {program} [KEY=VALUE ...]"),
    ]
    for title, rows in sections.items():
        width = max(map(len, rows)) + 2
        lines += ["", title, *(f"  {left:<{width}}{right}" for left, right in rows.items())]
    return "\n".join(lines)


def job(cfg: DictConfig, folder: Path) -> None:
    """Check the options and save the workspace; its address goes into `folder`. Raises LabError."""
    config = resolved(cfg)
    config.pop("paths")
    node = {"_target_": f"{DashboardOptions.__module__}.{DashboardOptions.__name__}", **config}
    options: DashboardOptions = construct(node, where=CONFIG_NAME)
    from sliceformer_lab.dashboard.run import run

    run(options, folder)


DASHBOARD = Command(CONFIG_NAME, help_text, job)
