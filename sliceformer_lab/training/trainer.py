"""Lightning's trainer with the options that this project adds to it."""

from __future__ import annotations

import logging
from typing import Any, Literal, cast

import pytorch_lightning as pl
import torch
from torch import nn

Precision = Literal["32-true", "bf16-mixed", "16-mixed", "64-true", "bf16-true", "16-true"]
PrecisionOption = Literal["32-true", "bf16-mixed", "16-mixed", "64-true", "bf16-true", "16-true", "auto"]

log = logging.getLogger(__name__)


class Trainer(pl.Trainer):
    """Lightning's trainer, which can compile the encoder (`compile`). A run chooses precision=auto before it."""

    def __init__(
        self,
        *,
        compile: bool = False,  # noqa: A002 - the option's name
        precision: PrecisionOption = "32-true",
        **options: Any,
    ) -> None:
        super().__init__(precision=cast(Precision, precision), **options)
        self.compiles = compile


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
