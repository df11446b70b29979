"""The command `wandb`. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from sliceformer_lab.cli.command import Command
from sliceformer_lab.cli.jobs import command_options
from sliceformer_lab.commands.wandb.wandb_options import WandbOptions

NEEDS = {
    "a key": "WANDB_API_KEY, or `wandb login`",
    "the network": "workspaces and reports live on the server",
    "wandb-workspaces": "pip install 'sliceformer-lab[dashboard]'",
}


def job(cfg: DictConfig, folder: Path) -> None:
    """Validate the options, save the workspace or report and write its address into `folder`. Raises LabError."""
    options = command_options(cfg, WandbOptions, COMMAND.config_name)
    from sliceformer_lab.commands.wandb.save import save_on_server

    save_on_server(options, folder)


COMMAND = Command(
    word="wandb",
    summary="Save a workspace or a report on Weights & Biases, which compares runs that were logged there.",
    arguments="workspace|report [FOLDER] [KEY=VALUE ...]",
    examples={
        "workspace outputs/sweeps/NAME": "panels for the runs of a sweep, an audit, a search or a map",
        "workspace entity=my-team project=ranks metric=test/mae": "panels for all runs of a project",
        "report outputs/sweeps/NAME": "the page of `report`, an audit, a search or a map, with panels of its runs",
    },
    sections=lambda: {"Needs": NEEDS},
    job=job,
    bare_words=("action", "folder"),
)
