"""What every task shares: the model's configuration, the steps, the metrics and the predictions it keeps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from pytorch_lightning.trainer.states import TrainerFn
from torch import Tensor
from torchmetrics import MeanMetric, MetricCollection

from sliceformer_lab.batch import Batch
from sliceformer_lab.config.schema import construct
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.tasks.predictions import Predictions
from sliceformer_lab.training.interfaces import TaskModule
from sliceformer_lab.training.optim import OptimOptions


@dataclass(frozen=True)
class ModelConfig:
    """The nodes of the configuration that make a model and its recipe, as plain values."""

    encoder: dict[str, Any]
    block: dict[str, Any]
    attention: dict[str, Any]
    optim: dict[str, Any]


class Task(TaskModule):
    """A model and how it learns. A subclass adds embedding, pooling and head around the shared encoder.

    The constructor takes the model's configuration and the data's sizes positionally and the task's own options
    keyword-only; all of them are plain values and are kept in every checkpoint.
    """

    monitor: ClassVar[str] = "accuracy"  # of the metrics, what the best epoch is chosen by
    monitor_mode: ClassVar[str] = "max"
    kept_type: ClassVar[torch.dtype] = torch.float16  # of predictions in predictions.npz

    def __init__(self, model: ModelConfig | Mapping[str, Any], data: DataSpec | Mapping[str, Any]) -> None:
        super().__init__()
        self.model_config = model if isinstance(model, ModelConfig) else ModelConfig(**model)
        self.data_spec = data if isinstance(data, DataSpec) else DataSpec(**data)
        self.optim: OptimOptions = construct(self.model_config.optim, where="optim")
        self.num_steps: int | None = None  # that training takes, known when it starts
        self.predictions: dict[str, Predictions] = {}
        self.val_metrics, self.test_metrics = self.build_metrics(), self.build_metrics()
        # not Lightning's own mean, which over processes divides by the mean batch size rounded down
        self.val_loss, self.test_loss = MeanMetric(nan_strategy="disable"), MeanMetric(nan_strategy="disable")

    def keep_options(self, **options: object) -> None:
        """Put the constructor's arguments, as plain values, into every checkpoint."""
        arguments = {"model": asdict(self.model_config), "data": asdict(self.data_spec), **options}
        self.save_hyperparameters(arguments, logger=False)  # loggers have the run's whole configuration

    @abstractmethod
    def build_metrics(self) -> MetricCollection:
        """Metrics of one split, updated with (output, target)."""

    @abstractmethod
    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The training loss, a scalar."""

    def evaluation_loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The loss that validation and test report; the training loss without its regularisation."""
        return self.loss(output, target)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """One training batch -> its loss."""
        loss = self.loss(self(batch), batch.target)
        self.log("train/loss", loss.detach(), on_step=False, on_epoch=True, batch_size=len(batch), sync_dist=True)
        self.log("train/batch_loss", loss.detach(), on_step=True, on_epoch=False, prog_bar=True)
        self.log("train/lr", self.trainer.optimizers[0].param_groups[0]["lr"], on_step=True, on_epoch=False)
        return loss

    def on_train_start(self) -> None:
        """Nothing is left of a run that was resumed after its last step."""
        self._stop_after_last_step()

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:
        """Stop after the last of a run's `steps`; Lightning then validates, though the epoch may not be over."""
        self._stop_after_last_step()

    def _stop_after_last_step(self) -> None:
        if self.optim.last_step is not None and self.trainer.global_step >= self.optim.last_step:
            self.trainer.should_stop = True

    def validation_step(self, batch: Batch, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Score a validation batch, or a test batch where test curves are asked for."""
        split = self.trainer.datamodule.validation_stages[dataloader_idx]  # type: ignore[attr-defined]
        scoring = self.trainer.state.fn == TrainerFn.VALIDATING
        self._score(batch, split, "test_curve" if split == "test" else "val", keep=scoring)

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Score a test batch and keep its predictions."""
        self._score(batch, "test", "test", keep=True)

    def _score(self, batch: Batch, split: str, prefix: str, *, keep: bool) -> None:
        output = self(batch)
        kept = self.kept(output, batch).to(self.kept_type)  # the metrics are those of the predictions that are kept
        validating = split == "val"
        metrics, mean_loss = (self.val_metrics, self.val_loss) if validating else (self.test_metrics, self.test_loss)
        metrics.update(kept.float() if kept.is_floating_point() else kept.long(), batch.target)
        mean_loss.update(self.evaluation_loss(output, batch.target).expand(len(batch)))  # once an example
        values = {f"{prefix}/{name}": metric for name, metric in (*metrics.items(), ("loss", mean_loss))}
        self.log_dict(values, on_epoch=True, logger=not keep, batch_size=len(batch), add_dataloader_idx=False)
        if keep:
            self.predictions.setdefault(split, Predictions()).add(batch, kept)

    def kept(self, output: Tensor, batch: Batch) -> Tensor:
        """What of the output is kept as the prediction: all of it, or what it decides."""
        del batch
        return output

    def on_validation_start(self) -> None:
        """Forget the predictions of an earlier pass."""
        self.predictions.pop("val", None)

    def on_test_start(self) -> None:
        """Forget the predictions of an earlier pass."""
        self.predictions.pop("test", None)

    def configure_optimizers(self) -> Any:
        """The recipe's optimiser, its schedule stepped after each optimiser step."""
        optimizer = self.optim.build_optimizer(self)
        steps = self.optim.steps or int(self.trainer.estimated_stepping_batches)
        schedule = self.optim.build_schedule(optimizer, steps)
        self.num_steps = min(steps, self.optim.last_step or steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
