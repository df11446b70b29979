"""Writes checkpoints to the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytorch_lightning.plugins.io import TorchCheckpointIO

from sliceformer_lab.runs.files import whole_file


class AtomicCheckpointIO(TorchCheckpointIO):
    """Replaces a checkpoint only once the new one is complete, so that a full disk or a kill keeps the old one."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """Writes a temporary file, flushes it to the disk and renames it; removes it if that fails."""
        with whole_file(Path(path)) as unfinished:
            super().save_checkpoint(checkpoint, unfinished, storage_options)
