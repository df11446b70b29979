"""The command line of the analyses: its help, and its one job. Imports nothing heavy."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from sliceformer_lab.cli.help import explained, page, root_options
from sliceformer_lab.cli.jobs import command_options, resolved
from sliceformer_lab.cli.main import Command
from sliceformer_lab.commands.inspect.inspect_options import AnalyzeOptions
from sliceformer_lab.errors import LabError

CONFIG_NAME = "inspect"
EXAMPLES = {
    "spectrum runs=outputs/digits": "every run below a folder, untrained and trained",
    "residual runs=[outputs/a,outputs/b] checkpoint=best": "two run folders, at their scored checkpoints",
    "heatmaps runs=outputs/digits analysis.layers=[1,4]": "an option of one analysis",
    "maps runs=outputs/digits": "what each operator brings together, and how far tokens travel",
    "same_v runs=outputs/digits": "one model's values through every operator",
    "--cfg job": "print every option with its value",
}


def help_text() -> str:
    """Example commands, every analysis with a line on it, and the options that all of them have."""
    program = "python -m sliceformer_lab inspect"
    sections = {
        "Examples": {f"{program} {words}": said for words, said in EXAMPLES.items()},
        "Analyses": explained("analysis"),
        "Options, and what they are by default": root_options(CONFIG_NAME),
        "Written to FOLDER/analysis/ANALYSIS": {
            "ANALYSIS.csv": "every measured value in a row of its own",
            "ANALYSIS.json": "the runs, commits, seeds and samples behind it, and what was left out",
            "*.png, *.pdf": "the figures",
        },
    }
    said = "Show what the layers of finished runs do to their tokens."
    return page(said, f"{program} [ANALYSIS] [runs=FOLDER] [KEY=VALUE ...]", sections)


def job(cfg: DictConfig, folder: Path) -> None:
    """Check the options, open the runs and write the analysis into `folder`. Raises LabError."""
    options = command_options(cfg, AnalyzeOptions, CONFIG_NAME, apart="analysis")
    name = str(HydraConfig.get().runtime.choices["analysis"])
    from sliceformer_lab.commands.inspect.analyse import run

    try:
        run(name, resolved(cfg)["analysis"], options, folder)
    except LabError:
        with suppress(OSError):  # nothing was written: leave no empty folders among the runs
            folder.rmdir()
            folder.parent.rmdir()
        raise


INSPECT = Command(CONFIG_NAME, help_text, job, bare_word="analysis")
