"""Predicts the inputs of a file or folder and writes a table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from rich.console import Console

from sliceformer_lab.commands.predict.mask_files import MaskFiles
from sliceformer_lab.commands.predict.predict_options import PredictOptions
from sliceformer_lab.errors import LabError
from sliceformer_lab.training.prediction_table import Row, write_table
from sliceformer_lab.training.saved_run import load_run

MOST_ERRORS = 20  # that are printed; the table has all


def run(options: PredictOptions, folder: Path) -> None:
    """Write the predictions of the run in `folder` for all inputs, and print which could not be predicted.

    Raises LabError if none could, or if the output exists and `overwrite` is off; then nothing is written.
    """
    output = Path(options.output).expanduser()
    if output.exists() and (output.is_dir() or not options.overwrite):
        hint = "choose another output" if output.is_dir() else "choose another output, or overwrite=true"
        raise LabError(f"output={output} exists; {hint}")
    if not output.parent.is_dir():
        raise LabError(f"output={output}: there is no folder {output.parent}")
    predictor = load_run(folder).predictor
    masks = MaskFiles(output, predictor.names.classes)
    masks.check(options.overwrite)
    if torch.cuda.is_available():
        predictor.task.to("cuda")
    errors: list[str] = []
    total = 0

    def counted() -> Iterator[Row]:
        nonlocal total
        for row in predictor.rows(predictor.read(Path(options.input).expanduser(), options.column)):
            total += 1
            if "error" in row:
                errors.append(f"{row['place']}: {row['error']}")
            if "mask" in row:
                row["mask"] = masks.write(row["place"], row["mask"])
            yield row
        if len(errors) == total:
            raise LabError(f"none of {total:,} inputs can be predicted: {'; '.join(errors[:3])}")

    write_table(output, predictor.columns, counted())
    console = Console(highlight=False, soft_wrap=True)
    for error in errors[:MOST_ERRORS]:
        console.print(f"not predicted: {error}", markup=False)
    if len(errors) > MOST_ERRORS:
        console.print(f"{len(errors) - MOST_ERRORS:,} more are in the column `error`", markup=False)
    console.print(f"predicted {total - len(errors):,} of {total:,} inputs: {output}", markup=False)
