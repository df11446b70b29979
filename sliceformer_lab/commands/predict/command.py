"""The command `predict`. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from sliceformer_lab.cli.command import Command
from sliceformer_lab.cli.jobs import command_options
from sliceformer_lab.commands.predict.predict_options import PredictOptions

COLUMNS = {
    "place": "file, or file and line, of each input; the rows have the order of the inputs",
    "text or smiles": "the input, where it is one of these",
    "prediction": "the name of the class; or prediction_TARGET, a number or a label 0 or 1",
    "probability_NAME": "of each class or label",
    "mask": "of a model of masks: the file of the mask, in the folder OUTPUT_masks and in the size of the picture",
    "share_NAME": "of a model of masks: the share of the pixels that the class has",
    "error": "why an input has no prediction",
}
RECORD = {"OUTPUT.json": "the run, and digests of the data that it was trained on and of the input"}


def job(cfg: DictConfig, folder: Path) -> None:
    """Validate the options, predict the inputs and write the table. Raises LabError."""
    options = command_options(cfg, PredictOptions, COMMAND.config_name)
    from sliceformer_lab.commands.predict.predict_inputs import predict_inputs

    predict_inputs(options, folder)


COMMAND = Command(
    word="predict",
    summary="Predict new inputs with a trained model.",
    arguments="resume=RUN input=FILE [KEY=VALUE ...]",
    examples={
        "resume=RUN input=new.csv": "the texts or SMILES of a table, in the column that the run was trained on",
        "resume=RUN input=new.csv column=abstract": "in another column",
        "resume=RUN input=molecules.smi": "a SMILES a line, with a name after it if there is one",
        "resume=RUN input=pictures output=cats.csv": "every picture or cloud in a folder and the folders in it",
    },
    sections=lambda: {"Written beside OUTPUT": RECORD, "Columns of the table": COLUMNS},
    job=job,
    writes_log=False,  # into the folder of a run
)
