"""The options of the command `export`: the schema of conf/export.yaml."""

from dataclasses import dataclass
from typing import Literal

Format = Literal["torch_export", "onnx", "executorch", "safetensors"]


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """The options of `conf/export.yaml`."""

    resume: str
    format: Format = "safetensors"
    output: str | None = None  # None: export/<format> in the run folder
