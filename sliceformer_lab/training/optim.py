"""Builds the optimizer and its learning-rate schedule from a training recipe."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Field
from torch import nn, optim
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau

from sliceformer_lab.config.option_types import Count, Fraction, Natural, NonNegative, Positive
from sliceformer_lab.errors import ConfigError

EMBEDDING = ("embedding.", "bias.", "edge_features.", "encoder.position.", "encoder.embed_norm.")  # before the blocks
_BLOCK = re.compile(r"encoder\.blocks\.(\d+)\.(?!attention\.)")


@dataclass(frozen=True, kw_only=True)
class OptimOptions:
    """A training recipe: optimizer, schedule and length. conf/optim/adam_cosine.yaml explains each option.

    Set `epochs`, `steps` (optimizer steps) or `target_steps`, which `epochs_for` turns into epochs. `max_steps`
    shortens the run and rescales its schedule. Raises ValueError for options that contradict each other.
    """

    optimizer: Literal["adam", "adamw", "sgd", "muon", "lion", "nadamw", "radamw", "adoptw", "lamb"] = "adam"
    lr: Positive = 1e-4
    betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    eps: Positive = 1e-8
    weight_decay: NonNegative = 0.0
    no_decay: bool = True
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    freeze: Natural = 0
    clip_norm: Positive | None = None
    accumulate: Count = 1
    epochs: Count | None = 100
    steps: Count | None = None
    target_steps: Count | None = None
    least_epochs: Count = 1
    most_epochs: Count | None = None
    val_every: Count | None = None
    max_steps: Count | None = None
    stop_at: float | None = None
    schedule: Literal["constant", "cosine", "linear", "inverse_sqrt", "multistep", "plateau"] = "cosine"
    interval: Literal["step", "epoch"] = "epoch"
    warmup_steps: Natural | Literal["untuned"] = 0
    warmup_share: Fraction | None = None
    warmup_lr: NonNegative = 0.0
    warmup_power: Positive = 1.0
    min_lr: NonNegative = 0.0
    min_lr_share: Fraction = 0.0
    decay_power: Positive = 1.0
    cycle: Literal["fit", "official"] = "fit"
    horizon: Count | None = None
    milestones: tuple[int, ...] = ()
    plateau_factor: Annotated[float, Field(gt=0, lt=1)] = 0.5
    plateau_patience: Natural = 20

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None) and not (self.steps is None and self.target_steps):
            too = "; with epochs, set val_every=null too" if self.steps and self.val_every else ""
            raise ValueError(
                f"epochs={self.epochs} and steps={self.steps}: set one of them and leave the other null{too}"
            )
        if self.most_epochs is not None and self.most_epochs < self.least_epochs:
            raise ValueError(f"most_epochs={self.most_epochs} is less than least_epochs={self.least_epochs}")
        if self.warmup_share is not None and self.warmup_steps != 0:
            raise ValueError(
                f"warmup_share={self.warmup_share} and warmup_steps={self.warmup_steps} both set the warm-up; "
                "set warmup_share=null or warmup_steps=0"
            )
        if self.steps is None and self.val_every is not None:
            raise ValueError(f"val_every={self.val_every} counts optimizer steps; set steps and epochs=null")
        if self.steps is not None and (self.interval == "epoch" or self.schedule == "multistep"):
            raise ValueError(
                f"steps={self.steps} has no epochs, but interval={self.interval} and schedule={self.schedule}; "
                "set interval=step and another schedule than multistep"
            )
        if self.schedule == "plateau" and (self.warmup_steps != 0 or self.warmup_share is not None):
            raise ValueError("schedule=plateau has no warm-up; set warmup_steps=0 and warmup_share=null")
        if self.cycle == "official" and self.horizon is None:
            raise ValueError("cycle=official needs a horizon, the step at which the published decay ends")
        if self.horizon is not None and self.horizon <= self._warmup:
            raise ValueError(f"horizon={self.horizon} must be greater than warmup_steps={self._warmup}")
        if self.warmup_lr > self.lr:
            raise ValueError(f"warmup_lr={self.warmup_lr}, the rate of the first step, exceeds lr={self.lr}")

    def epochs_for(self, steps_per_epoch: int, factor: int = 1) -> int:
        """The epochs of `factor` times `target_steps` steps, at least `least_epochs` and at most `most_epochs`."""
        wanted = math.ceil(factor * (self.target_steps or 0) / max(1, steps_per_epoch))
        return min(max(wanted, self.least_epochs), self.most_epochs or sys.maxsize)

    def build_optimizer(self, model: nn.Module) -> optim.Optimizer:
        """The optimizer for the trainable parameters of `model`.

        With `no_decay`, parameters of fewer than two dimensions (biases, norms, scalars) and those with the attribute
        `no_decay` get no weight decay. A parameter's attribute `lr_scale` multiplies its learning rate. So does
        `layer_decay`, once for each block above it and once more for what follows the last block. Muon trains the
        matrices of the encoder, and AdamW beside it the tables, the head and all vectors.
        """
        if self.optimizer in ("adam", "adamw", "sgd"):
            return self._of_torch(model)
        from timm.optim import create_optimizer_v2  # type: ignore[attr-defined]  # slow to import

        groups = self._group_parameters(model)
        betas = {"betas": self.betas}
        options = {"muon": betas, "lion": betas}.get(self.optimizer, betas | {"eps": self.eps})
        built: optim.Optimizer = create_optimizer_v2(
            groups, opt=self.optimizer, lr=self.lr, weight_decay=self.weight_decay, **options
        )
        return built

    def _of_torch(self, model: nn.Module) -> optim.Optimizer:
        params = self._group_parameters(model)
        fused = True if all(map(_on_cpu, (p for group in params for p in group["params"]))) else None
        if self.optimizer == "sgd":  # fused=None: torch's choice, which is fast on a GPU
            return optim.SGD(params, lr=self.lr, momentum=self.betas[0], fused=fused)
        adam = optim.Adam if self.optimizer == "adam" else optim.AdamW
        return adam(params, lr=self.lr, betas=self.betas, eps=self.eps, fused=fused)

    def freeze_layers(self, model: nn.Module) -> None:
        """Keeps the embedding and the first `freeze` blocks as they are, but not their attention.

        Raises ConfigError for more blocks than there are.
        """
        if not self.freeze:
            return
        numbers = _number_layers(model)
        if self.freeze > (depth := max(numbers.values()) - 1):
            raise ConfigError(f"optim.freeze={self.freeze}: the encoder has {depth} blocks; freeze at most as many")
        for name, parameter in model.named_parameters():
            if numbers[name] <= self.freeze:
                parameter.requires_grad_(False)

    def _group_parameters(self, model: nn.Module) -> list[dict[str, Any]]:
        """The trainable parameters with equal decay and rate; for Muon, also by whether it trains them."""
        tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
        numbers = _number_layers(model)
        top = max(numbers.values())
        groups: dict[tuple[float, float, bool], list[nn.Parameter]] = {}
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                exempt = self.no_decay and (parameter.ndim < 2 or getattr(parameter, "no_decay", False))
                beside = self.optimizer == "muon" and (id(parameter) in tables or name.startswith("head."))
                scale = getattr(parameter, "lr_scale", 1.0) * self.layer_decay ** (top - numbers[name])
                key = (0.0 if exempt else self.weight_decay, scale, beside)
                groups.setdefault(key, []).append(parameter)
        return [
            {
                "params": members,
                "weight_decay": decay,
                "lr": self.lr * scale,
                **({"use_fallback": True} if beside else {}),
            }
            for (decay, scale, beside), members in groups.items()
        ]

    def build_schedule(self, optimizer: optim.Optimizer, total_steps: int) -> LRScheduler:
        """The schedule of a run of `total_steps` optimizer steps; call its `step()` after each of them.

        That of schedule=plateau takes `step(loss)` after each validation instead. After `plateau_patience` validations
        in a row whose loss is not below the lowest one by 0.01 %, the next one of them multiplies the rate by
        `plateau_factor`, down to `min_lr`.
        """
        if self.schedule == "plateau":
            return ReduceLROnPlateau(
                optimizer, factor=self.plateau_factor, patience=self.plateau_patience, min_lr=self.min_lr
            )
        return LambdaLR(optimizer, self.rate_factor(total_steps))

    def rate_factor(self, total_steps: int) -> Callable[[int], float]:
        """The learning rate divided by `lr`, as a function of the optimizer step (from 0).

        A warm-up of `warmup_steps`, or of `warmup_share` of all steps, comes first, then the schedule over the
        remaining steps. With warmup_steps=untuned the warm-up multiplies a schedule over all steps (Ma & Yarats 2021,
        section 5). With interval=epoch all steps of an epoch have the rate of its first step. If `max_steps` is shorter
        than the run, warm-up takes at most a tenth of it, and decay and milestones come at the same fraction of the
        run.
        """
        if self.max_steps is not None and self.max_steps < total_steps:
            return self._rescale(self.max_steps).rate_factor(self.max_steps)
        if self.warmup_share is not None:
            warmup = round(self.warmup_share * total_steps)
            return replace(self, warmup_share=None, warmup_steps=warmup).rate_factor(total_steps)
        steps_per_epoch = max(1, total_steps // self.epochs) if self.epochs else 1
        first = self.warmup_lr / self.lr

        def factor(step: int) -> float:
            if self.warmup_steps == "untuned":
                return min(1.0, (step + 1) * (1 - self.betas[1]) / 2) * decay(step)
            if step < self.warmup_steps:
                share: float = ((step + 1) / self.warmup_steps) ** self.warmup_power
                return first + (1 - first) * share
            return decay(step)

        def decay(step: int) -> float:
            if self.interval == "epoch":
                step = step // steps_per_epoch * steps_per_epoch
            return self._after_warmup(step, total_steps)

        return factor

    def warmup_fault(self, total_steps: int) -> str | None:
        """A sentence about a warm-up that takes more than a tenth of a run of `total_steps`; None if it is shorter."""
        if self.max_steps is not None and self.max_steps < total_steps:
            return None  # a shortened run limits its warm-up
        if self.warmup_share is not None:
            steps, option = round(self.warmup_share * total_steps), "optim.warmup_share=0.05"
        else:
            steps, option = self._warmup, f"optim.warmup_steps={total_steps // 20}"
        if steps <= 0.1 * total_steps:
            return None
        taken = f"{min(steps, total_steps):,} of {total_steps:,} steps"
        return f"the warm-up takes {taken}, more than a tenth; try {option} or a longer run"

    @property
    def last_step(self) -> int | None:
        """The number of optimizer steps after which a run ends; None if it ends after `epochs`."""
        return min((steps for steps in (self.steps, self.max_steps) if steps is not None), default=None)

    def num_steps(self, steps_per_epoch: int) -> int:
        """The number of optimizer steps of a run whose epochs have so many; one epoch if `epochs` is not known yet."""
        steps = self.steps or (self.epochs or 1) * steps_per_epoch
        return min(steps, self.last_step or steps)

    def _rescale(self, length: int) -> OptimOptions:
        """The recipe for a run of `length` steps, with a warm-up of at most a tenth of them."""
        warmup = round(2 / (1 - self.betas[1])) if self.warmup_steps == "untuned" else self.warmup_steps
        share = None if self.warmup_share is None else min(self.warmup_share, 0.1)
        shorter = replace(self, max_steps=None, warmup_steps=min(warmup, length // 10), warmup_share=share)
        return replace(shorter, cycle="fit", horizon=None)

    @property
    def _warmup(self) -> int:
        """Steps before the schedule begins."""
        return 0 if self.warmup_steps == "untuned" else self.warmup_steps

    def _after_warmup(self, step: int, total_steps: int) -> float:
        lowest = max(self.min_lr / self.lr, self.min_lr_share)
        match self.schedule:
            case "constant" | "plateau":  # which depends on the losses
                return 1.0
            case "cosine":
                return lowest + (1 - lowest) * 0.5 * (1 + math.cos(math.pi * self._decay_progress(step, total_steps)))
            case "linear":
                left: float = (1 - self._decay_progress(step, total_steps)) ** self.decay_power
                return lowest + (1 - lowest) * left
            case "inverse_sqrt":  # sqrt(w / t) with t counted from 1; the rate is `lr` at the end of the warm-up
                return math.sqrt(max(1, self._warmup) / max(1, self._warmup, step + 1))
            case "multistep":
                epochs = self.epochs or total_steps
                return float(0.1 ** sum(step * epochs >= epoch * total_steps for epoch in self.milestones))

    def _decay_progress(self, step: int, total_steps: int) -> float:
        """The finished part of the decay, 0 to 1; with cycle=official a cosine restarts after 1."""
        end = self.horizon if self.cycle == "official" and self.horizon else total_steps
        done = max(0, step - self._warmup) / max(1, end - self._warmup)
        return done % 1.0 if self.cycle == "official" and self.schedule == "cosine" else min(1.0, done)


def _number_layers(model: nn.Module) -> dict[str, int]:
    """The layer of each parameter: 0 of the embedding, 1 to the depth of the blocks, one more of all others.

    Attentions are among the others: pretrained weights of another model fill all but them.
    """
    blocks = {name: _BLOCK.match(name) for name, _ in model.named_parameters()}
    top = max((int(found[1]) for found in blocks.values() if found), default=0) + 2
    layers = {name: int(found[1]) + 1 if found else top for name, found in blocks.items()}
    return layers | {name: 0 for name in layers if name.startswith(EMBEDDING)}


def _on_cpu(parameter: nn.Parameter) -> bool:
    """Whether torch's fused optimisers take a parameter on the CPU; they do not take one that is split by fsdp."""
    return type(parameter) is nn.Parameter and parameter.device.type == "cpu" and parameter.is_floating_point()
