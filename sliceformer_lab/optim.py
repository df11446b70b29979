"""From a recipe to an optimiser and its learning-rate schedule."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field
from torch import nn, optim
from torch.optim.lr_scheduler import LambdaLR

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Natural = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, kw_only=True)
class OptimOptions:
    """A training recipe: optimiser, schedule and length; conf/optim lists what each option means."""

    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    lr: Positive = 1e-4
    betas: tuple[float, float] = (0.9, 0.999)
    eps: Positive = 1e-8
    weight_decay: NonNegative = 0.0
    no_decay: bool = True
    schedule: Literal["constant", "cosine", "linear", "inverse_sqrt", "multistep"] = "cosine"
    interval: Literal["step", "epoch"] = "epoch"
    warmup_steps: Natural = 0
    min_lr: NonNegative = 0.0
    milestones: tuple[int, ...] = ()
    epochs: Annotated[int, Field(ge=1)] = 100
    clip_norm: Positive | None = None

    def build_optimizer(self, model: nn.Module) -> optim.Optimizer:
        """The optimiser over the trainable parameters of `model`.

        With `no_decay` set, parameters of fewer than two dimensions (biases, norms, scalars) and those that carry the
        attribute `no_decay` are not decayed. An attribute `lr_scale` multiplies a parameter's rate.
        """
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        for parameter in (p for p in model.parameters() if p.requires_grad):
            exempt = self.no_decay and (parameter.ndim < 2 or getattr(parameter, "no_decay", False))
            decay = 0.0 if exempt else self.weight_decay
            groups.setdefault((decay, getattr(parameter, "lr_scale", 1.0)), []).append(parameter)
        params = [
            {"params": members, "weight_decay": decay, "lr": self.lr * scale}
            for (decay, scale), members in groups.items()
        ]
        if self.optimizer == "sgd":
            return optim.SGD(params, lr=self.lr, momentum=self.betas[0])
        adam = optim.Adam if self.optimizer == "adam" else optim.AdamW
        return adam(params, lr=self.lr, betas=self.betas, eps=self.eps)

    def build_schedule(self, optimizer: optim.Optimizer, total_steps: int) -> LambdaLR:
        """The learning rate over `total_steps` optimiser steps; call `step()` after each of them."""
        return LambdaLR(optimizer, self.rate_factor(total_steps))

    def rate_factor(self, total_steps: int) -> Callable[[int], float]:
        """What the highest rate is multiplied with at a step counted from 0.

        A linear warm-up over `warmup_steps`, then the schedule over the steps that are left; with interval=epoch each
        epoch keeps the rate of its first step.
        """
        steps_per_epoch = max(1, total_steps // self.epochs)

        def factor(step: int) -> float:
            if step < self.warmup_steps:
                return (step + 1) / self.warmup_steps
            if self.interval == "epoch":
                step = step // steps_per_epoch * steps_per_epoch
            return self._after_warmup(step, total_steps, steps_per_epoch)

        return factor

    def _after_warmup(self, step: int, total_steps: int, steps_per_epoch: int) -> float:
        progress = min(1.0, max(0, step - self.warmup_steps) / max(1, total_steps - self.warmup_steps))
        lowest = self.min_lr / self.lr
        match self.schedule:
            case "constant":
                return 1.0
            case "cosine":
                return lowest + (1 - lowest) * 0.5 * (1 + math.cos(math.pi * progress))
            case "linear":
                return 1 - (1 - lowest) * progress
            case "inverse_sqrt":  # sqrt(warmup / step), so that its highest rate is `lr`
                return math.sqrt(max(1, self.warmup_steps) / max(1, self.warmup_steps, step))
            case "multistep":
                return float(0.1 ** sum(step >= epoch * steps_per_epoch for epoch in self.milestones))
