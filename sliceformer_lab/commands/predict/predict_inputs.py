"""Predicts the inputs of a file or folder and writes a table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from sliceformer_lab.commands.predict.mask_files import MaskFiles
from sliceformer_lab.commands.predict.predict_options import PredictOptions
from sliceformer_lab.errors import LabError
from sliceformer_lab.runs.files import digest_of, write_json
from sliceformer_lab.runs.folder import recorded_digests
from sliceformer_lab.runs.plain_text import PlainConsole
from sliceformer_lab.training.results.predicted import TableRow
from sliceformer_lab.training.results.prediction_table import write_table
from sliceformer_lab.training.saved.saved_run import load_run

MAX_PRINTED_ERRORS = 20  # that are printed; the table has all


def predict_inputs(options: PredictOptions, folder: Path) -> None:
    """Write the predictions of the run in `folder` for all inputs, and print which could not be predicted.

    Raises LabError if none could, or if the output exists and `overwrite` is off; then nothing is written.
    """
    output, source = Path(options.output).expanduser(), Path(options.input).expanduser()
    _check_output(output, options.overwrite)
    if output.exists() and source.exists() and output.samefile(source):
        raise LabError(f"output={output} is the input itself; choose another output")
    if output.suffix.lower() != ".csv":
        raise LabError(f"output={output}: the table is a CSV file; give a name that ends in .csv")
    if not output.parent.is_dir():
        raise LabError(f"output={output}: there is no folder {output.parent}")
    record = output.with_name(f"{output.name}.json")
    if record.exists() and not options.overwrite and '"trained_on"' not in record.read_text("utf-8", "replace"):
        raise LabError(f"{record} exists, in which predict records the data; choose another output, or overwrite=true")
    predictor = load_run(folder).predictor
    masks = MaskFiles(output, predictor.names.classes)
    masks.check(options.overwrite)
    if "mask" in predictor.columns and masks.folder.resolve() in (source.resolve(), *source.resolve().parents):
        raise LabError(f"output={output}: its masks belong into {masks.folder}, the input; choose another output")
    if torch.cuda.is_available():
        predictor.task.to("cuda")
    errors: list[str] = []
    total = 0

    def counted() -> Iterator[TableRow]:
        nonlocal total
        _check_output(output, options.overwrite)  # again: no other process can write it now
        with masks.moved_at_end():
            for row in predictor.rows(predictor.read(source, options.column)):
                total += 1
                if "error" in row:
                    errors.append(f"{row['place']}: {row['error']}")
                if "mask" in row:
                    row["mask"] = masks.write(row["place"], row["mask"])
                yield row
            if len(errors) == total:
                raise LabError(f"none of {total:,} inputs can be predicted: {'; '.join(errors[:3])}")

    write_table(output, predictor.columns, counted())
    masks.clean()
    read = {str(source.resolve()): digest_of(source)}
    write_json(record, {"run": str(folder.resolve()), "trained_on": recorded_digests(folder), "input": read})
    console = PlainConsole()
    for error in errors[:MAX_PRINTED_ERRORS]:
        console.print(f"not predicted: {error}")
    if len(errors) > MAX_PRINTED_ERRORS:
        console.print(f"{len(errors) - MAX_PRINTED_ERRORS:,} more are in the column `error`")
    console.print(f"predicted {total - len(errors):,} of {total:,} inputs: {output}")


def _check_output(output: Path, overwrite: bool) -> None:
    """Raises LabError if the output exists and may not be replaced."""
    if output.exists() and (output.is_dir() or not overwrite):
        hint = "choose another output" if output.is_dir() else "choose another output, or overwrite=true"
        raise LabError(f"output={output} exists; {hint}")
