"""The dashboard's command line: its help, and its one job. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from sliceformer_lab.cli.help import page, root_options
from sliceformer_lab.cli.jobs import command_options
from sliceformer_lab.cli.main import Command
from sliceformer_lab.commands.wandb.workspace_options import DashboardOptions

CONFIG_NAME = "wandb"
WHAT = """Save a workspace on Weights & Biases: panels that compare the runs of a project.
It needs a key (WANDB_API_KEY, or `wandb login`), the network, and pip install 'sliceformer-lab[dashboard]'."""
EXAMPLES = {
    "": "a workspace for all runs of the project sliceformer_lab",
    "entity=my-team project=ranks": "for a project of a team",
    "group=2026-11-20_16-49-13-969447": "for the runs of a sweep",
    "metric=test/mae curve=val/mae": "for a task with another metric",
}


def help_text() -> str:
    """Example commands, what is saved, and every option with its default."""
    program = "python -m sliceformer_lab wandb"
    sections = {
        "Examples": {f"{program} {words}".strip(): said for words, said in EXAMPLES.items()},
        "Options, and what they are by default": root_options(CONFIG_NAME),
    }
    return page(WHAT, f"{program} [KEY=VALUE ...]", sections)


def job(cfg: DictConfig, folder: Path) -> None:
    """Check the options and save the workspace; its address goes into `folder`. Raises LabError."""
    options = command_options(cfg, DashboardOptions, CONFIG_NAME)
    from sliceformer_lab.commands.wandb.save import run

    run(options, folder)


WORKSPACE = Command(CONFIG_NAME, help_text, job)
