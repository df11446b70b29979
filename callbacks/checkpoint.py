"""Which checkpoints a run keeps."""

from __future__ import annotations

from pytorch_lightning.callbacks import ModelCheckpoint

from sliceformer_lab.context import RunContext


class BestCheckpoint(ModelCheckpoint):
    """`checkpoints/best.ckpt`, of the epoch with the best monitored metric; keeps none where none is monitored."""

    def __init__(self, context: RunContext) -> None:
        super().__init__(
            dirpath=context.folder / "checkpoints",
            filename="best",
            monitor=context.monitor,
            mode=context.monitor_mode,
            save_top_k=0 if context.monitor is None else 1,
            enable_version_counter=False,
        )


class LastCheckpoint(ModelCheckpoint):
    """`checkpoints/last.ckpt`, after every epoch; `resume` goes on from it."""

    def __init__(self, context: RunContext) -> None:
        super().__init__(dirpath=context.folder / "checkpoints", filename="last", enable_version_counter=False)
