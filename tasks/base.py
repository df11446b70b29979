"""What every task shares: the model's configuration, the steps, the metrics and the predictions it keeps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from pytorch_lightning import LightningModule
from pytorch_lightning.trainer.states import TrainerFn
from torch import Tensor, nn
from torchmetrics import MetricCollection

from sliceformer_lab.batch import Batch
from sliceformer_lab.config import construct
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.optim import OptimOptions


@dataclass(frozen=True)
class ModelConfig:
    """The nodes of the configuration that make a model and its recipe, as plain values."""

    encoder: dict[str, Any]
    block: dict[str, Any]
    attention: dict[str, Any]
    optim: dict[str, Any]


class Task(LightningModule, ABC):
    """A model and how it learns. A subclass adds embedding, pooling and head around the shared encoder.

    The constructor takes the model's configuration and the data's sizes positionally and the task's own options
    keyword-only; all of them are plain values and are kept in every checkpoint.
    """

    monitor: ClassVar[str] = "accuracy"  # of the metrics, what the best epoch is chosen by
    monitor_mode: ClassVar[str] = "max"

    def __init__(self, model: ModelConfig | Mapping[str, Any], data: DataSpec | Mapping[str, Any]) -> None:
        super().__init__()
        self.model_config = model if isinstance(model, ModelConfig) else ModelConfig(**model)
        self.data_spec = data if isinstance(data, DataSpec) else DataSpec(**data)
        self.optim: OptimOptions = construct(self.model_config.optim, where="optim")
        self.predictions: dict[str, Predictions] = {}
        self.metrics = nn.ModuleDict({f"{stage}_metrics": self.build_metrics() for stage in ("val", "test")})

    def keep_options(self, **options: object) -> None:
        """Put the constructor's arguments, as plain values, into every checkpoint."""
        self.save_hyperparameters({"model": asdict(self.model_config), "data": asdict(self.data_spec), **options})

    @abstractmethod
    def num_tokens(self) -> int:
        """Longest sequence that reaches the encoder, CLS or graph token included."""

    @abstractmethod
    def build_metrics(self) -> MetricCollection:
        """Metrics of one split, updated with (output, target)."""

    @abstractmethod
    def forward(self, batch: Batch) -> Tensor:
        """The output for a batch: logits (B, classes), or (B, T) for regression."""

    @abstractmethod
    def example(self) -> Batch:
        """A batch of one sample of the largest size, for counting costs."""

    @abstractmethod
    def chance(self, targets: Tensor) -> float:
        """The monitored metric of a model that has learned nothing but the commonest target."""

    def initialise(self) -> None:
        """Put pretrained weights into a fresh model, where the configuration names any."""

    @abstractmethod
    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The training loss, a scalar."""

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """One training batch -> its loss."""
        loss = self.loss(self(batch), batch.target)
        self.log("train/loss", loss.detach(), on_step=False, on_epoch=True, batch_size=len(batch), prog_bar=True)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Score a validation batch, or a test batch where test curves are asked for (second loader)."""
        curve = dataloader_idx > 0
        keep = self.trainer.state.fn == TrainerFn.VALIDATING and not curve
        self._score(batch, "test" if curve else "val", curve=curve, keep=keep)

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Score a test batch and keep its predictions."""
        self._score(batch, "test", curve=False, keep=True)

    def _score(self, batch: Batch, split: str, *, curve: bool, keep: bool) -> None:
        output = self(batch)
        prefix = "test_curve" if curve else split
        metrics = self.metrics[f"{split}_metrics"]
        metrics.update(output, batch.target)
        values = {f"{prefix}/{name}": metric for name, metric in metrics.items()}
        options: dict[str, Any] = {"on_epoch": True, "batch_size": len(batch), "add_dataloader_idx": False}
        self.log_dict(values, prog_bar=not curve, **options)
        self.log(f"{prefix}/loss", self.evaluation_loss(output, batch.target), sync_dist=True, **options)
        if keep:
            self.predictions.setdefault(split, Predictions()).add(batch, output)

    def evaluation_loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The loss that validation and test report; the training loss without its regularisation."""
        return self.loss(output, target)

    def on_validation_start(self) -> None:
        """Forget the predictions of an earlier pass."""
        self.predictions.pop("val", None)

    def on_test_start(self) -> None:
        """Forget the predictions of an earlier pass."""
        self.predictions.pop("test", None)

    def configure_optimizers(self) -> Any:
        """The recipe's optimiser, its schedule stepped after each optimiser step."""
        optimizer = self.optim.build_optimizer(self)
        schedule = self.optim.build_schedule(optimizer, int(self.trainer.estimated_stepping_batches))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Predictions:
    """Outputs of one split, collected batch by batch."""

    def __init__(self) -> None:
        self._parts: list[tuple[Tensor, Tensor, Tensor]] = []

    def add(self, batch: Batch, output: Tensor) -> None:
        """Keep ids, targets and outputs (fp16) of a batch on the CPU."""
        self._parts.append((batch.ids.cpu(), batch.target.cpu(), output.detach().half().cpu()))

    def gathered(self) -> dict[str, Tensor]:
        """ids (n,), targets (n, ...) and logits (n, ...) of the whole split, sorted by id, from all processes."""
        parts = self._parts
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            everyone: list[list[tuple[Tensor, Tensor, Tensor]]] = [
                [] for _ in range(torch.distributed.get_world_size())
            ]
            torch.distributed.all_gather_object(everyone, parts)
            parts = [part for one in everyone for part in one]
        ids, targets, logits = (torch.cat(column) for column in zip(*parts, strict=True))
        order = ids.argsort()
        return {"ids": ids[order], "targets": targets[order], "logits": logits[order]}
