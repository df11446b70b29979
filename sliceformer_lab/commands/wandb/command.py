"""The command `wandb`. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from sliceformer_lab.cli.command import Command
from sliceformer_lab.cli.jobs import command_options
from sliceformer_lab.commands.wandb.workspace_options import WorkspaceOptions

NEEDS = {
    "a key": "WANDB_API_KEY, or `wandb login`",
    "the network": "workspaces live on the server",
    "wandb-workspaces": "pip install 'sliceformer-lab[dashboard]'",
}


def job(cfg: DictConfig, folder: Path) -> None:
    """Validate the options, save the workspace and write its address into `folder`. Raises LabError."""
    options = command_options(cfg, WorkspaceOptions, COMMAND.config_name)
    from sliceformer_lab.commands.wandb.save_workspace import run

    run(options, folder)


COMMAND = Command(
    word="wandb",
    summary="Save a workspace on Weights & Biases: panels that compare the runs of a project.",
    examples={
        "": "a workspace for all runs of the project sliceformer_lab",
        "entity=my-team project=ranks": "for a project of a team",
        "group=2026-11-20_16-49-13-969447": "for the runs of a sweep",
        "metric=test/mae curve=val/mae": "for a task with another metric",
    },
    sections=lambda: {"Needs": NEEDS},
    job=job,
)
