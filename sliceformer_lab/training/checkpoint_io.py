"""How checkpoints reach the disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pytorch_lightning.plugins.io import TorchCheckpointIO


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the old file and renames, so that a full disk or a kill never costs the checkpoint there was."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """Write, flush to the disk, rename; a file that could not be finished is removed."""
        target = Path(path)
        unfinished = target.with_name(target.name + ".unfinished")
        try:
            super().save_checkpoint(checkpoint, unfinished, storage_options)
            with unfinished.open("rb+") as file:
                os.fsync(file.fileno())
            unfinished.replace(target)
        finally:
            unfinished.unlink(missing_ok=True)
