"""Writes an export folder: the model, its card and the preprocessing; compares it with the model of the run."""

from __future__ import annotations

import shutil
from itertools import product
from pathlib import Path

import torch

from sliceformer_lab.commands.export.card import model_card, sentence_of_lengths
from sliceformer_lab.commands.export.export_options import ExportOptions, Format
from sliceformer_lab.commands.export.program import (
    Function,
    Lengths,
    Predict,
    Written,
    exported,
    lengths_of,
    sample_inputs,
    write_executorch,
    write_onnx,
    write_program,
)
from sliceformer_lab.config.schema import allowed_too
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.errors import ConfigError, LabError, RunFolderError
from sliceformer_lab.runs.files import whole_folder, write_text
from sliceformer_lab.runs.plain_text import PlainConsole
from sliceformer_lab.runs.sweep import resume_word
from sliceformer_lab.training.interfaces import TaskModule
from sliceformer_lab.training.saved.exported_model import load_export, save_export
from sliceformer_lab.training.saved.saved_run import Run, load_run

TOLERANCE = 1e-4  # largest difference of an output, relative to the largest output
ROUNDED_SHARE = 0.01  # of a number; TOLERANCE of it is 8 roundings of 32 bits
BATCHES = (1, 2, 5)  # samples in the batches that are compared
PREPROCESSING = (
    "preprocessing.json",
    "tokenizer.json",
    "series.json",
)  # of a run folder: names and sizes, word pieces, scales


def write_export(options: ExportOptions) -> None:
    """Writes the export. Raises LabError, and then leaves no folder."""
    source = Path(options.resume).expanduser()
    opened = load_run(source)
    if "metrics" not in opened.summary:
        raise RunFolderError(
            f"{source} holds a run that has scored no model ({opened.summary['status']}); continue it with "
            f"{resume_word(source)}, then export it"
        )
    folder = Path(options.output).expanduser() if options.output else source / "export" / options.format
    if folder.exists():
        raise ConfigError(f"output={folder}: this folder exists already; name a new one")
    with whole_folder(folder) as unfinished:
        written = _write_model(opened, options.format, unfinished)
        copied = [name for name in PREPROCESSING if (source / name).is_file()]
        for name in copied:
            shutil.copy2(source / name, unfinished / name)
        write_text(unfinished / "README.md", model_card(opened, options.format, written, copied))
    console = PlainConsole()
    difference = f"a relative difference of {written.difference:.1e}"
    console.print(f"the exported model gives the outputs of the run's model, up to {difference}")
    if written.lengths is not None:
        console.print(sentence_of_lengths(written.lengths))
    console.print(str(folder))


def _write_model(opened: Run, form: Format, folder: Path) -> Written:
    """Writes the model and compares it with the run's. Sequences may have any length if the model allows it."""
    task, spec = opened.model, opened.spec
    if form == "safetensors":
        save_export(folder, opened)
        loaded = load_export(folder, allowed_too())
        with torch.no_grad():
            return Written(compare_outputs([(loaded(task.example()), task(task.example()))], deviations_of(task)))
    if not spec.ragged:
        return _write_program(task, spec, form, folder, None)
    longest = task.example().inputs.shape[1]
    if form == "executorch":
        return _write_program(task, spec, form, folder, Lengths(longest, longest))
    try:
        return _write_program(task, spec, form, folder, Lengths(1, longest))
    except LabError as error:
        fixed = _write_program(task, spec, form, folder, Lengths(longest, longest))
        PlainConsole().print(f"a program of one length, since {error}")
        return fixed


def _write_program(task: TaskModule, spec: DataSpec, form: Format, folder: Path, lengths: Lengths | None) -> Written:
    """Writes a program for inputs of these lengths and compares it at each of `Lengths.samples`. Raises LabError."""
    program = exported(task, spec, lengths, one_input=form == "executorch")
    lengths = lengths and lengths_of(program)
    predict: Predict
    if form == "onnx":
        predict = write_onnx(program, folder / "model.onnx")
    elif form == "executorch":
        predict = write_executorch(program, folder / "model.pte")
    else:
        predict = write_program(program, folder / "model.pt2")
    function = Function(task)
    pairs = []
    with torch.no_grad():
        for batch, tokens in product(BATCHES, [None] if lengths is None else lengths.samples()):
            arguments = sample_inputs(task, spec, batch=batch, tokens=tokens)
            pairs.append((_outputs_of(predict, arguments), function(*arguments)))
    return Written(compare_outputs(pairs, deviations_of(task)), lengths)


def _outputs_of(predict: Predict, arguments: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The outputs of the written program. Raises LabError if it fails."""
    try:
        return predict(*arguments)
    except Exception as error:  # of torch or a runtime: a size that was taken as fixed
        reason = " ".join(str(error).splitlines()[:1])
        shape = tuple(arguments[0].shape)
        raise LabError(f"the exported model does not take inputs of {shape} ({reason})") from error


def deviations_of(task: TaskModule) -> torch.Tensor | None:
    """The deviation of each number that the task predicts (T,); None for classes and labels."""
    return dict(task.named_buffers()).get("target_std") if task.data_spec.targets == "numbers" else None


def compare_outputs(pairs: list[tuple[torch.Tensor, torch.Tensor]], deviations: torch.Tensor | None) -> float:
    """The largest difference relative to the largest output. Raises LabError if it is above the tolerance.

    Each number counts relative to its deviation: beside a large mean, as of a year, any error looks small. But the
    rounding of that mean is no error.
    """
    width = 1 if deviations is None else len(deviations)
    given, expected = (torch.cat([pair[side].reshape(-1, width) for pair in pairs]) for side in (0, 1))
    largest = expected.abs().amax(0)
    if deviations is not None:
        largest = deviations.clamp(ROUNDED_SHARE * largest, largest)
    difference = float(((given - expected).abs().amax(0) / largest.clamp(min=1e-12)).max())  # torch's max keeps NaN
    if not difference <= TOLERANCE:
        compared = "of the largest output" if deviations is None else "standard deviations"
        raise LabError(
            f"the exported model differs from the run's by {difference:.1e} {compared}, more than {TOLERANCE:.0e}; "
            "use another format"
        )
    return difference
