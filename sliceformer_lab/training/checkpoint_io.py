"""How checkpoints reach the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytorch_lightning.plugins.io import TorchCheckpointIO

from sliceformer_lab.runs.files import whole_file


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the old file and renames, so that a full disk or a kill never costs the checkpoint there was."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """Write, flush to the disk, rename; a file that could not be finished is removed."""
        with whole_file(Path(path)) as unfinished:
            super().save_checkpoint(checkpoint, unfinished, storage_options)
