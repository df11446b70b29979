"""The base class of all tasks: configuration of the model, steps, metrics and saved predictions."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import torch
from pytorch_lightning.plugins.precision import MixedPrecision
from pytorch_lightning.trainer.states import TrainerFn
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from sliceformer_lab.batch import Batch
from sliceformer_lab.config.checked import ModelNodes, check_model
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.tasks.metrics import MeanLoss
from sliceformer_lab.training.interfaces import TaskModule
from sliceformer_lab.training.optim import OptimOptions
from sliceformer_lab.training.processes.other_processes import of_all_processes
from sliceformer_lab.training.processes.sharding import shard

log = logging.getLogger(__name__)

ModelConfig = ModelNodes | Mapping[str, Any]  # of a configuration, or the plain values of a checkpoint
DataSizes = DataSpec | Mapping[str, Any]  # the same


class Task(TaskModule):
    """A model and its training. A subclass adds embedding, pooling and head around the shared encoder.

    The constructor takes the model's nodes and the data's sizes positionally and the task's own options keyword-only.
    """

    monitor = "accuracy"
    monitor_mode = "max"
    kept_type: torch.dtype = torch.float16  # of the predictions in predictions.npz

    def __init__(self, model: ModelConfig, data: DataSizes) -> None:
        super().__init__()
        self.nodes = model if isinstance(model, ModelNodes) else check_model(model)
        self.data_spec = data if isinstance(data, DataSpec) else DataSpec(**data)
        self.optim: OptimOptions = self.nodes.optim.build()
        self.num_steps: int | None = None  # of the training, known when it starts
        self._scored: dict[str, list[tuple[Tensor, Tensor, Tensor]]] = {}  # ids, targets, outputs of batches, by split
        self._logs_train_loss = False  # in the current epoch
        self.val_metrics, self.test_metrics = self.build_metrics(), self.build_metrics()
        # not Lightning's own mean, which over processes divides by the mean batch size rounded down
        self.train_loss, self.val_loss, self.test_loss = MeanLoss(), MeanLoss(), MeanLoss()

    @property
    def dim(self) -> int:
        """The width of the encoder's tokens."""
        return int(self.nodes.encoder.options["dim"])

    def evaluation_loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The loss in validation and test: the training loss without its regularisation."""
        return self.loss(output, target)

    def counted_parts(self, batch: Batch) -> Tensor:
        """The parts of a batch that its loss is the mean over: bool of any shape."""
        return batch.known

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss = self.loss(self(batch), batch.target)
        self.train_loss.update(loss.detach(), self.counted_parts(batch))
        if not self._logs_train_loss:  # once an epoch: Lightning computes the metric when it needs it
            self.log("train/loss", self.train_loss, on_step=False, on_epoch=True)
        if not self._logs_train_loss or self._step_is_logged():
            self.log("train/batch_loss", loss.detach(), on_step=True, on_epoch=False, prog_bar=True)
            rates = [group["lr"] for group in self.trainer.optimizers[0].param_groups]
            self.log("train/lr", max(rates), on_step=True, on_epoch=False)  # layer_decay makes the others smaller
        self._logs_train_loss = True
        return loss

    def _step_is_logged(self) -> bool:
        """Whether loggers receive the values of this step: one in `log_every_n_steps`, and the last of the run."""
        step, every = self.trainer.global_step + 1, self.trainer.log_every_n_steps  # type: ignore[attr-defined]
        last = self.num_steps is not None and step >= self.num_steps
        return last or bool(every and step % every == 0)

    def on_train_start(self) -> None:
        """Warns of a long warm-up, and stops a run that is resumed after its last step."""
        is_dry = self.trainer.fast_dev_run  # type: ignore[attr-defined]
        steps = self.num_steps if self.trainer.is_global_zero and not is_dry else None
        if steps and (fault := self.optim.warmup_fault(steps)):
            log.warning(f"WARNING: {fault}")
        self._stop_after_last_step()

    def on_train_epoch_start(self) -> None:
        """Forgets the losses of the previous epoch. Lightning skips it when it resumes an epoch."""
        self.train_loss.reset()
        self._logs_train_loss = False

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adds each process's sum of the training losses of this epoch and their number, and `stopped_at`."""
        parts = [self.train_loss.total, self.train_loss.count]
        checkpoint["stopped_at"] = self.stopped_at
        checkpoint["train_loss"] = of_all_processes([part.cpu() for part in parts])

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restores `stopped_at` and this process's sums, which an epoch that is resumed goes on from."""
        self.stopped_at = checkpoint["stopped_at"]
        sums = checkpoint["train_loss"]
        if self.global_rank < len(sums):
            total, count = sums[self.global_rank]
            self.train_loss.total.copy_(total)
            self.train_loss.count.copy_(count)
            self.train_loss._update_count = 1

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:
        """Stops after the last step of the run; Lightning then validates, even within an epoch."""
        self._stop_after_last_step()

    def _stop_after_last_step(self) -> None:
        last = self.optim.last_step
        if self.stopped_at is not None or (last is not None and self.trainer.global_step >= last):
            self.trainer.should_stop = True

    def _stop_at_score(self) -> None:
        if self.optim.stop_at is None or self.stopped_at is not None:
            return
        score, sign = float(self.val_metrics[self.monitor].compute()), 1 if self.monitor_mode == "max" else -1
        if sign * score >= sign * self.optim.stop_at:
            self.stopped_at, self.trainer.should_stop = self.trainer.global_step, True

    def validation_step(self, batch: Batch, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Scores a validation batch, or a test batch for test curves."""
        split = self.trainer.datamodule.validation_stages[dataloader_idx]  # type: ignore[attr-defined]
        scoring = self.trainer.state.fn == TrainerFn.VALIDATING
        self._score(batch, split, "test_curve" if split == "test" else "val", keep=scoring)

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Scores a test batch and saves its predictions."""
        self._score(batch, "test", "test", keep=True)

    def _score(self, batch: Batch, split: str, prefix: str, *, keep: bool) -> None:
        output = self(batch)
        kept = self.kept(output, batch).to(self.kept_type)  # metrics are computed from the saved precision
        validating = split == "val"
        metrics, mean_loss = (self.val_metrics, self.val_loss) if validating else (self.test_metrics, self.test_loss)
        metrics.update(kept.float() if kept.is_floating_point() else kept.long(), batch.target)
        mean_loss.update(self.evaluation_loss(output, batch.target), self.counted_parts(batch))
        values = {f"{prefix}/{name}": metric for name, metric in (*metrics.items(), ("loss", mean_loss))}
        self.log_dict(values, on_epoch=True, logger=not keep, batch_size=len(batch), add_dataloader_idx=False)
        if keep:
            part = (batch.ids.cpu(), batch.target.cpu(), kept.detach().cpu())
            self._scored.setdefault(split, []).append(part)

    def kept(self, output: Tensor, batch: Batch) -> Tensor:
        """The prediction to save: the output itself, or the decision made from it."""
        return output

    def predicted(self, batch: Batch) -> Tensor:
        """The prediction for a batch as predictions.npz would hold it."""
        return self.kept(self(batch), batch).to(self.kept_type)

    def gathered_predictions(self) -> dict[str, dict[str, Tensor]]:
        """The predictions of all processes; every process must call it."""
        found = {}
        for split, own in self._scored.items():
            parts = [part for each in of_all_processes(own) for part in each]
            ids, targets, logits = (torch.cat(column) for column in zip(*parts, strict=True))
            order = ids.argsort()
            found[split] = {"ids": ids[order], "targets": targets[order], "logits": logits[order]}
        return found

    def example(self) -> Batch:
        """One black image or one sequence of the largest length, to count costs with; its target is a placeholder."""
        spec, device = self.data_spec, self.device
        nothing = torch.zeros(1, dtype=torch.long, device=device)
        if spec.image_size is not None:
            return Batch(torch.zeros(1, spec.channels, *spec.image_size, device=device), nothing, nothing)
        if spec.vocab_size:
            return Batch(torch.zeros(1, spec.max_len or 1, dtype=torch.long, device=device), nothing, nothing)
        return Batch(torch.zeros(1, spec.max_len or 1, spec.channels, device=device), nothing, nothing)

    def on_validation_start(self) -> None:
        """Drops the predictions of an earlier pass."""
        self._scored.pop("val", None)

    def on_test_start(self) -> None:
        self._scored.pop("test", None)

    def configure_model(self) -> None:
        """Splits the weights over the processes under trainer=fsdp, before the optimiser takes them."""
        if self.device_mesh is not None:
            shard(self, self.device_mesh)

    def configure_optimizers(self) -> Any:
        """The recipe's optimiser, with a schedule that advances after each optimiser step or validation."""
        optimizer = self.optim.build_optimizer(self)
        steps = self.optim.steps or int(self.trainer.estimated_stepping_batches)
        schedule = self.optim.build_schedule(optimizer, steps)
        self.num_steps = min(steps, self.optim.last_step or steps)
        if isinstance(schedule, ReduceLROnPlateau):
            plan = {"interval": "epoch", "monitor": "val/loss"}
        else:
            plan = {"interval": "step"}
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, **plan}}

    def configure_gradient_clipping(
        self, optimizer: Optimizer, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        """Clips the norm of the gradients.

        Lightning refuses this in 16 bits for torch's fused optimisers, because some of them undo a loss scale
        themselves. bfloat16 has no loss scale.
        """
        plugin = self.trainer.precision_plugin
        if gradient_clip_val is not None and isinstance(plugin, MixedPrecision) and plugin.scaler is None:
            plugin.clip_grad_by_norm(optimizer, gradient_clip_val)
        else:
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        """Advances a schedule, except for one that `on_validation_epoch_end` advances."""
        if not isinstance(scheduler, ReduceLROnPlateau):
            super().lr_scheduler_step(scheduler, metric)

    def on_validation_epoch_end(self) -> None:
        """Passes the loss to schedule=plateau, and stops at optim.stop_at.

        Lightning would pass it after the checkpoint and lose it in a resume.
        """
        if self.trainer.state.fn != TrainerFn.FITTING or self.trainer.sanity_checking:
            return
        self._stop_at_score()
        for config in self.trainer.lr_scheduler_configs:
            if isinstance(config.scheduler, ReduceLROnPlateau):
                config.scheduler.step(float(self.val_loss.compute()))
