"""The base class of pretraining on hidden inputs."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import torch
from torch import Tensor, nn

from sliceformer_lab.batch import Batch
from sliceformer_lab.encoder.factory import Encoder
from sliceformer_lab.tasks.base import Task
from sliceformer_lab.training.pretraining.pretrain_options import PretrainOptions

TRAINING, VALIDATION, ORDER = range(3)  # what a draw is for, in the seeds of generators


class Pretraining(Task):
    """Finds hidden parts of a task's inputs with the task's encoder.

    The draws depend only on the seed, the step and the example, so all attentions have the same; in validation they
    are always the same. `rate` is the share of the parts that is hidden, unless `options.mask_rate` is another.
    """

    kept_type = torch.float32

    def __init__(self, task: Task, options: PretrainOptions, seed: int, rate: float) -> None:
        super().__init__(task.nodes, task.data_spec)
        self.task, self.options, self.seed = task, options, seed
        self.rate = rate if options.mask_rate is None else options.mask_rate
        self.vector = nn.Parameter(torch.randn(self.dim) * 0.02)  # that marks what is hidden

    @property
    def encoder(self) -> Encoder:  # type: ignore[override]  # the task's, and in no state_dict twice
        return self.task.encoder

    def initialise(self) -> None:
        self.task.initialise()

    def example(self) -> Batch:
        """The task's example, in part hidden."""
        return self.hide(self.task.example(), None)

    @abstractmethod
    def hide(self, batch: Batch, step: int | None) -> Batch:
        """The batch with hidden parts, and as targets what they were.

        `step` is the optimizer step; None: as in every validation.
        """

    def draws(self, ids: Tensor, count: int, step: int | None, use: int = TRAINING) -> Tensor:
        """Uniform numbers (B, count) in 0..1 for the examples `ids` (B,); the first ones do not depend on `count`."""
        key = (self.seed, use, VALIDATION, 0) if step is None else (self.seed, use, TRAINING, step)
        rows = [np.random.default_rng((*key, example)).random(count, dtype=np.float32) for example in ids.tolist()]
        return torch.from_numpy(np.stack(rows)).to(ids.device)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return super().training_step(self.hide(batch, self.trainer.global_step), batch_idx)

    def _score(self, batch: Batch, split: str, prefix: str, *, keep: bool) -> None:
        super()._score(self.hide(batch, None), split, prefix, keep=False)
