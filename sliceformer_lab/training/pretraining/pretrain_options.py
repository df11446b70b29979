"""The user's options of self-pretraining."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sliceformer_lab.config.option_types import Count, Fraction, Positive


@dataclass(frozen=True, kw_only=True)
class PretrainOptions:
    """Masked modelling before the training. conf/pretrain/masked.yaml explains each option.

    Raises ValueError for a rate that masks nothing, and for options of a pretraining that `path` makes needless.
    """

    mask_rate: Fraction | None = None
    epochs: Count | None = None
    lr: Positive | None = None
    shuffle_tokens: bool = False
    keep: Literal["all", "without_attention"] = "all"
    path: str | None = None

    def __post_init__(self) -> None:
        if self.mask_rate == 0:
            raise ValueError("mask_rate=0 leaves nothing to find; choose a share such as 0.15, or null")
        given = [name for name in ("mask_rate", "epochs", "lr") if getattr(self, name) is not None]
        if self.path is not None and (given or self.shuffle_tokens):
            raise ValueError(
                f"path={self.path} is a finished pretraining, so {(*given, 'shuffle_tokens')[0]} has no effect; "
                "leave one of them out"
            )
