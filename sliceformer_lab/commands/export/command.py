"""The command `export`. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from sliceformer_lab.cli.command import Command
from sliceformer_lab.cli.jobs import command_options
from sliceformer_lab.commands.export.export_options import ExportOptions, Format
from sliceformer_lab.errors import check_extra

FORMATS = {
    "safetensors": "weights and config.json; sliceformer_lab.load_export opens them",
    "torch_export": "model.pt2, a program that needs torch only",
    "onnx": "model.onnx; needs pip install 'sliceformer-lab[export]'",
    "executorch": "model.pte, for one input of a fixed length; needs pip install 'sliceformer-lab[executorch]'",
}
EXTRAS: dict[Format, tuple[str, ...]] = {  # the extra that a format needs, and the modules that it brings
    "onnx": ("export", "onnx", "onnxscript", "onnxruntime"),
    "executorch": ("executorch", "executorch.exir", "executorch.runtime"),  # the package alone imports nothing
}


def job(cfg: DictConfig, folder: Path) -> None:
    """Validate the options, write the model and its card into a folder, and compare the outputs. Raises LabError."""
    del folder  # the export makes its own; this one has the log, if there is any
    options = command_options(cfg, ExportOptions, COMMAND.config_name)
    if options.format in EXTRAS:
        check_extra(f"format={options.format}", *EXTRAS[options.format])
    from sliceformer_lab.commands.export.write_export import write_export

    write_export(options)


COMMAND = Command(
    word="export",
    summary="Write a run's model as a file for other programs, and check that it gives the same outputs.",
    arguments="resume=RUN [KEY=VALUE ...]",
    examples={
        "resume=RUN": "weights and configuration in RUN/export/safetensors",
        "resume=RUN format=torch_export": "a program for torch, in RUN/export/torch_export",
        "resume=RUN format=onnx output=model": "a file for ONNX Runtime, in the folder model",
    },
    sections=lambda: {"Formats (format=)": FORMATS},
    job=job,
)
