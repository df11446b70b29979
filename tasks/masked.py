"""Masked modelling: a model fills in hidden patches, tokens or atoms of its inputs, before it is trained on targets."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchmetrics import Metric, MetricCollection

from sliceformer_lab.batch import NO_CLASS, Batch
from sliceformer_lab.encoder.hidden import Hidden
from sliceformer_lab.tasks.base import Task
from sliceformer_lab.tasks.metrics import MeanOfValues
from sliceformer_lab.tasks.pretraining import ORDER, Pretraining
from sliceformer_lab.training.pretraining.pretrain_options import PretrainOptions


@dataclass(frozen=True, kw_only=True)
class Units:
    """The parts of a sample that can be hidden. One of `classes` and `numbers` says what is to be found of each."""

    name: str  # in the plural
    rate: float  # share that is hidden
    most: int  # of a sample
    classes: int = 0
    numbers: int = 0


class Maskable(Task):
    """A task whose inputs consist of units that can be hidden one by one, for its encoder to find them."""

    maskable = True

    @property
    @abstractmethod
    def masked_units(self) -> Units:
        """What is hidden, at which rate, and what is to be found."""

    def units(self, batch: Batch) -> Tensor:
        """The units of a batch, (B, N) or (B, N, F); padding of the batch is a suffix of them."""
        return batch.inputs

    def with_units(self, batch: Batch, units: Tensor) -> Batch:
        """The batch with other units."""
        return replace(batch, inputs=units)

    def unit_targets(self, units: Tensor) -> Tensor:
        """What is to be found of each unit: classes (B, N) or numbers (B, N, F)."""
        return units

    @abstractmethod
    def encode_units(self, batch: Batch, hidden: Hidden) -> Tensor:
        """The tokens of the units after the encoder (B, N, C), with `hidden.vector` in place of hidden units."""

    def pretraining(self, options: PretrainOptions, seed: int) -> Pretraining:
        return MaskedModelling(self, options, seed)


class MaskedModelling(Pretraining):
    """Finds hidden units of a task's inputs. A batch -> logits or numbers (M, F) of its hidden units.

    The batch has zeros in place of a hidden unit, its token is one learned vector (plus its position), and bonds
    between hidden atoms have no features. Each is hidden independently. Padding and CLS tokens are never hidden. The
    loss is the mean over the hidden units of the cross-entropy, or of the absolute errors of numbers.
    Source: Amos, Berant and Gupta 2024, Never train from scratch. Their models see 0 and a flag in place of a hidden
    pixel and have no CLS token.
    """

    task: Maskable

    def __init__(self, task: Maskable, options: PretrainOptions, seed: int) -> None:
        self.found = task.masked_units  # before the base class builds the metrics from it
        self.monitor = "accuracy" if self.found.classes else "r2"
        super().__init__(task, options, seed, self.found.rate)
        self.head = nn.Linear(self.dim, self.found.classes or self.found.numbers)

    def build_metrics(self) -> MetricCollection:
        """Accuracy and that of the commonest class; or R2, and R2 beyond the mean of each position."""
        metrics: dict[str, Metric | MetricCollection]
        if self.found.classes:
            metrics = {"accuracy": MaskedAccuracy(), "most_frequent": MostFrequent(self.found.classes)}
        else:
            shape = (self.found.most, self.found.numbers)
            metrics = {"r2": MaskedR2(shape), "r2_beyond_position": MaskedR2(shape, at_position=True)}
        return MetricCollection(metrics, compute_groups=False)

    def hide(self, batch: Batch, step: int | None) -> Batch:
        """The batch with hidden units, and as targets what they were; others have NO_CLASS or NaN."""
        units = self.task.units(batch)
        shape = (units.shape[0], units.shape[1])
        real = torch.ones(shape, dtype=torch.bool, device=units.device)
        if batch.padding is not None:
            real = batch.padding.mask
        if self.options.shuffle_tokens:
            order = self.draws(batch.ids, shape[1], step, ORDER).masked_fill(~real, 2.0).argsort(dim=1, stable=True)
            units = units.take_along_dim(order if units.ndim == 2 else order[..., None], dim=1)
        mask = (self.draws(batch.ids, shape[1], step) < self.rate) & real
        target = self.task.unit_targets(units)
        if self.found.classes:
            target = target.masked_fill(~mask, NO_CLASS)
        else:
            target = target.masked_fill(~mask[..., None], torch.nan)
        visible = units.masked_fill(mask if units.ndim == 2 else mask[..., None], 0)
        return replace(self.task.with_units(batch, visible), target=target)

    def forward(self, batch: Batch) -> Tensor:
        """A batch of `hide` -> logits or numbers (M, F) of its hidden units."""
        hidden = Hidden(is_masked(batch.target), self.vector)
        return self.head(self.task.encode_units(batch, hidden)[hidden.mask])

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy or absolute error, the mean over the hidden units; zero if none is hidden."""
        wanted = target[is_masked(target)]
        if not len(wanted):
            return output.sum() * 0.0
        return functional.cross_entropy(output, wanted) if self.found.classes else functional.l1_loss(output, wanted)

    def kept(self, output: Tensor, batch: Batch) -> Tensor:
        """The most probable classes (M,), or the numbers (M, F)."""
        return output.argmax(dim=1) if self.found.classes else output

    def chance(self, targets: Tensor) -> float:
        """The share of the commonest class; 0, the R2 of the mean, for numbers."""
        known = targets[is_masked(targets)]
        return float(known.bincount().max() / len(known)) if self.found.classes else 0.0


def is_masked(target: Tensor) -> Tensor:
    """Which units (B, N) have a target: classes (B, N) or numbers (B, N, F)."""
    return ~target[..., 0].isnan() if target.is_floating_point() else target != NO_CLASS


class MaskedAccuracy(MeanOfValues):
    """Share of the masked units whose class is right."""

    summed_as = torch.long

    def update(self, predicted: Tensor, target: Tensor) -> None:
        self.add(predicted == target[is_masked(target)])


class MostFrequent(Metric):
    """Accuracy of always predicting the commonest class of the masked units, which needs no context."""

    full_state_update = False
    counts: Tensor  # (classes,)

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.add_state("counts", torch.zeros(classes, dtype=torch.long), dist_reduce_fx="sum")

    def update(self, predicted: Tensor, target: Tensor) -> None:
        self.counts += target[is_masked(target)].bincount(minlength=len(self.counts))

    def compute(self) -> Tensor:
        return self.counts.max() / self.counts.sum()


class MaskedR2(Metric):
    """Share of the squared deviations of masked numbers from their mean that is explained; below 0 if none is.

    `shape` is (N, F). With `at_position`, deviations are from the mean of each position and number, which is all that a
    model without context can know; otherwise from the mean of all.
    """

    full_state_update = False
    count: Tensor  # (N, F)
    total: Tensor
    squares: Tensor
    errors: Tensor

    def __init__(self, shape: tuple[int, int], *, at_position: bool = False) -> None:
        super().__init__()
        self.at_position = at_position
        for name in ("count", "total", "squares"):
            self.add_state(name, torch.zeros(shape, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("errors", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, predicted: Tensor, target: Tensor) -> None:
        mask = is_masked(target)
        self.errors += (predicted - target[mask]).double().square().sum()
        known = target.masked_fill(~mask[..., None], 0).double()
        places = slice(target.shape[1])  # a batch of short samples has fewer positions
        self.count[places] += mask.sum(0)[:, None]
        self.total[places] += known.sum(0)
        self.squares[places] += known.square().sum(0)

    def compute(self) -> Tensor:
        count, total = (self.count, self.total) if self.at_position else (self.count.sum(), self.total.sum())
        deviations = self.squares.sum() - (total.square() / count.clamp_min(1)).sum()
        return torch.where(deviations > 0, 1 - self.errors / deviations, torch.nan).float()
