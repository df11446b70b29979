"""Measures rank collapse: singular spectra and residuals of the tokens in every layer, over a run."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.utilities.seed import isolate_rng
from torch import Tensor
from torch.utils.data import DataLoader

from sliceformer_lab.batch import Batch
from sliceformer_lab.config.option_types import Count, Natural
from sliceformer_lab.measures.capture import evaluation_mode, record_blocks
from sliceformer_lab.measures.probe import measure_layers, over_samples
from sliceformer_lab.measures.probe_record import MEASURES, ProbeRecord
from sliceformer_lab.runs.plain_text import counted
from sliceformer_lab.training.context import RunContext
from sliceformer_lab.training.interfaces import TaskModule
from sliceformer_lab.training.processes.sharding import is_sharded
from sliceformer_lab.training.results.observers import Observer

log = logging.getLogger(__name__)


class Spectrum(Callback):
    """Measures one fixed probe batch of validation data before, during and after training.

    In every `encoder.blocks[i]` it measures the operator's input (the output of `attention.value`), the operator's
    output (the input of `attention.out`) and the block's output: for each sample the matrix of its real tokens,
    without CLS and padding. `measures.probe` defines the measures. Writes `spectrum.npz` (`ProbeRecord`) after every
    measurement and `spectrum.png` at the end, and logs means over the layers. Training does not change: the probe
    runs in evaluation mode without gradients and restores modes and random generators. Main process only.
    """

    def __init__(
        self,
        context: RunContext,
        *,
        num_samples: Count = 12,
        max_tokens: Count = 256,
        every_n_epochs: Count = 10,
        seed: Natural = 0,
    ) -> None:
        self.folder = context.folder
        self.num_samples, self.max_tokens = num_samples, max_tokens
        self.every_n_epochs, self.seed = every_n_epochs, seed
        self._probe: Batch | None = None
        self._record: ProbeRecord | None = None
        self._observer = Observer("the spectrum")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Reads the probe batch and measures the untrained model; a resumed run continues its record."""
        if not trainer.is_global_zero:
            return
        if is_sharded(pl_module):
            log.info("spectrum: not measured, because no process has all weights; `inspect spectrum` does it later")
        else:
            self._observer.run(lambda: self._start(trainer, pl_module))

    def _start(self, trainer: Trainer, model: LightningModule) -> None:
        finished, is_new = trainer.current_epoch - 1, trainer.global_step == 0
        file = self.folder / "spectrum.npz"
        self._record = ProbeRecord.load(file).up_to(finished) if not is_new and file.is_file() else None
        self._probe = _first_samples(trainer, self.num_samples)
        if self._probe is None:
            log.info("spectrum: not measured, because there is no validation data")
        if self._record is None and (is_new or finished >= 0):  # within the first epoch weights are not untrained
            self._measure(trainer, model, finished)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measures every `every_n_epochs` epochs."""
        if (trainer.current_epoch + 1) % self.every_n_epochs == 0:
            self._observer.run(lambda: self._measure(trainer, pl_module, trainer.current_epoch))

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measures the last weights and draws spectrum.png."""
        self._observer.run(lambda: self._finish(trainer, pl_module))

    def _finish(self, trainer: Trainer, model: LightningModule) -> None:
        self._measure(trainer, model, trainer.current_epoch - 1)
        if self._record is None or not trainer.is_global_zero:
            return
        from sliceformer_lab.measures.plots import plot_spectra

        plot_spectra(self._record, self.folder / "spectrum.png")

    def _measure(self, trainer: Trainer, model: LightningModule, epoch: int) -> None:
        if self._probe is None or (self._record is not None and epoch in self._record.epochs):
            return
        blocks = list(cast(TaskModule, model).encoder.blocks)
        with evaluation_mode(model), record_blocks(blocks) as taken, trainer.precision_plugin.forward_context():
            model(self._probe.to(model.device))
        now = self._record_of(epoch, blocks, taken, self._probe.ids)
        if self._record is None:
            log.info("spectrum: %s", now.note)
        self._record = now if self._record is None else self._record.followed_by(now)
        self._record.save(self.folder / "spectrum.npz")
        for logger in trainer.loggers:
            logger.log_metrics(_mean_over_layers(now) | {"epoch": epoch}, step=max(0, trainer.global_step - 1))

    def _record_of(self, epoch: int, blocks: Sequence[Any], taken: list[dict[str, Tensor]], ids: Tensor) -> ProbeRecord:
        layers = measure_layers(blocks, taken, max_tokens=self.max_tokens, seed=self.seed)
        stats = {name: over_samples(layers, name) for name in MEASURES}
        real = (taken[0]["lengths"] - blocks[0].attention.spec.num_prefix).numpy()
        sequences = len(real) // len(ids)  # of a sample; of pairs all first ones come first
        return ProbeRecord(
            epochs=np.array([epoch]),
            mean={name: mean[None] for name, (mean, _, _) in stats.items()},
            std={name: std[None] for name, (_, std, _) in stats.items()},
            attentions=np.array([type(block.attention).__name__ for block in blocks]),
            sample_ids=ids.repeat(sequences).numpy(),
            num_tokens=real.clip(max=self.max_tokens),
            note=self._note(real, len(ids), len(blocks)),
        )

    def _note(self, real: NDArray[np.int64], count: int, depth: int) -> str:
        tokens = f"{min(real)}" if min(real) == max(real) else f"{min(real)} to {max(real)}"
        cut = f", at most {self.max_tokens} of each, drawn with seed {self.seed}" if max(real) > self.max_tokens else ""
        return (
            f"first {count} validation samples of {tokens} tokens without CLS and padding{cut}; "
            f"{counted(depth, 'layer')}, float64; before training, every {self.every_n_epochs} epochs and at the end"
        )


def _first_samples(trainer: Trainer, count: int) -> Batch | None:
    """The first validation samples in order, read without advancing the validation loader."""
    loaders = trainer.datamodule.val_dataloader()  # type: ignore[attr-defined]
    loader = next(iter(loaders), None) if isinstance(loaders, list) else loaders
    if loader is None:
        return None
    with isolate_rng():
        probe: Batch = next(iter(DataLoader(loader.dataset, batch_size=count, collate_fn=loader.collate_fn)))
    return probe


def _mean_over_layers(record: ProbeRecord) -> dict[str, float]:
    """Means over the layers for a dashboard; `centred` values have the token mean removed."""
    shown = {"": "raw", "_centred": "mean_removed"}
    return {
        f"spectrum/{place}_{name}{suffix}_mean": float(np.nanmean(record.at(name, place, form)))
        for place in ("output", "stream")
        for name in ("stable_rank", "residual", "cosine")
        for suffix, form in shown.items()
    }
