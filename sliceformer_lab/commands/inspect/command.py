"""The command `inspect`. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from sliceformer_lab.cli.command import Command
from sliceformer_lab.cli.help import first_comments
from sliceformer_lab.cli.jobs import command_options, resolve_options
from sliceformer_lab.commands.inspect.inspect_options import InspectOptions

FILES = {
    "ANALYSIS.csv": "every measured value in a row of its own",
    "ANALYSIS.json": "the runs, commits, seeds and samples it was made from, and the runs left out",
    "*.png, *.pdf": "the figures",
}


def job(cfg: DictConfig, folder: Path) -> None:
    """Validate the options, open the runs and write the analysis into `folder`. Raises LabError."""
    options = command_options(cfg, InspectOptions, COMMAND.config_name, except_node="analysis")
    name = str(HydraConfig.get().runtime.choices["analysis"])
    from sliceformer_lab.commands.inspect.run_analysis import run_analysis

    run_analysis(name, resolve_options(cfg)["analysis"], options, folder)


COMMAND = Command(
    word="inspect",
    summary="Measure and plot what the layers of finished runs do to their tokens.",
    arguments="[ANALYSIS] [runs=FOLDER] [KEY=VALUE ...]",
    examples={
        "spectrum runs=outputs/digits": "every run below a folder, untrained and trained",
        "residual runs=[outputs/a,outputs/b] checkpoint=best": "two run folders, at their scored checkpoints",
        "spectrum runs=outputs/digits analysis.samples=8": "an option of one analysis",
        "maps runs=outputs/digits": "which tokens each operator mixes, and how far they travel",
        "--cfg job": "print every option with its value",
    },
    sections=lambda: {"Analyses": first_comments("analysis"), "Written to FOLDER/analysis/ANALYSIS": FILES},
    job=job,
    bare_words=("analysis",),
)
