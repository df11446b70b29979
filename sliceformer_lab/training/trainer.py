"""Lightning's trainer with the options that this project adds to it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Literal, cast

import pytorch_lightning as pl
import torch
from torch import nn

from sliceformer_lab.training.processes.sharding import Sharded

Precision = Literal["32-true", "bf16-mixed", "16-mixed"]  # Lightning casts batches for its others, which ours refuse
PrecisionOption = Literal["32-true", "bf16-mixed", "16-mixed", "auto"]
AUTOCAST = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}

log = logging.getLogger(__name__)


class Trainer(pl.Trainer):
    """Lightning's trainer with the options that a run may choose. It can compile the encoder (`compile`).

    `fixed` are the arguments that the run sets itself, which chooses precision=auto before. Lightning's others are no
    options, because they would change what a number is of: `limit_test_batches` would score a part of the test set.
    """

    def __init__(
        self,
        fixed: Mapping[str, Any],
        *,
        accelerator: str = "auto",
        devices: list[int] | str | int = "auto",
        num_nodes: int = 1,
        strategy: str = "auto",
        precision: PrecisionOption = "32-true",
        compile: bool = False,  # noqa: A002 - the option's name
        deterministic: bool | Literal["warn"] | None = None,
        benchmark: bool | None = None,
        limit_train_batches: int | float | None = None,
        limit_val_batches: int | float | None = None,
        log_every_n_steps: int | None = None,
        fast_dev_run: int | bool = False,
        overfit_batches: int | float = 0.0,
        profiler: str | None = None,
    ) -> None:
        super().__init__(
            accelerator=accelerator,
            devices=devices,
            num_nodes=num_nodes,
            strategy=Sharded() if strategy == "fsdp" else strategy,
            precision=cast(Precision, precision),
            deterministic=deterministic,
            benchmark=benchmark,
            limit_train_batches=limit_train_batches,
            limit_val_batches=limit_val_batches,
            log_every_n_steps=log_every_n_steps,
            fast_dev_run=fast_dev_run,
            overfit_batches=overfit_batches,
            profiler=profiler,
            **fixed,
        )
        self.compiles = compile


def autocast(device: str, precision: str | int | None) -> torch.autocast:
    """The context in which a model of a run with this precision computes, where Lightning does not call it."""
    half = AUTOCAST.get(str(precision))
    return torch.autocast(device, half, enabled=half is not None)


class CompiledForward:
    """An encoder's forward pass that torch.compile makes faster in training.

    Evaluation is not compiled, because analyses observe its layers. The weights keep their names in checkpoints. The
    dropout of compiled code draws other numbers. If the first compilation fails, a warning gives the reason, and the
    encoder stays as it was.
    """

    def __init__(self, encoder: nn.Module) -> None:
        self._encoder, self._plain = encoder, encoder.forward
        self._compiled: Any = torch.compile(encoder.forward)
        self._works = False  # a compiled call has succeeded

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """What the encoder's own forward pass returns."""
        if self._compiled is None or not self._encoder.training:
            return self._plain(*arguments, **options)
        try:
            output = self._compiled(*arguments, **options)
        except Exception as error:
            if self._works:
                raise
            self._compiled = None
            reason = next(iter(str(error).splitlines()), "") or type(error).__name__
            log.warning(f"WARNING: trainer.compile: torch.compile failed ({reason[:200]}); this run trains without it")
            return self._plain(*arguments, **options)
        self._works = True
        return output


def compile_encoder(encoder: nn.Module) -> None:
    """Lets training run compiled code of an encoder from its first batch on."""
    encoder.forward = CompiledForward(encoder)
