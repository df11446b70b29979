"""Writes checkpoints to the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO

from sliceformer_lab.runs.files import whole_bytes
from sliceformer_lab.runs.folder import FORMAT


class AtomicCheckpointIO(TorchCheckpointIO):
    """Replaces a checkpoint only once the new one is complete, so that a full disk or a kill keeps the old one."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """Writes a temporary file, flushes it to the disk and renames it; removes it if that fails.

        The file is written in its folder: Lightning's own way passes through TMPDIR, which may be smaller.
        """
        del storage_options
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_bytes(path) as file:  # in a file on the disk, torch.save would hide the error of a full one
            torch.save(checkpoint | {"format": FORMAT}, file)
