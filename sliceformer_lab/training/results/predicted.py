"""What a task reads to write and draw its predictions: the names of its outputs, and the predictions of a split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sliceformer_lab.data.base import DataModule
from sliceformer_lab.data.spec import Example
from sliceformer_lab.data.splits import Stage

TableRow = dict[str, Any]  # of a table, by column
PredictedSplits = Mapping[str, Mapping[str, Tensor]]  # by split: ids (n,), targets (n, ...) and logits (n, ...)


@dataclass(frozen=True)
class Names:
    """What the outputs of a model are called: one class for each number, or one target for each column."""

    classes: tuple[str, ...]
    targets: tuple[str, ...]
    thresholds: tuple[float, ...] = ()  # of each label: the probability above which it is predicted; (): one half


@dataclass(frozen=True)
class ScoredSplit:
    """The predictions of one split as predictions.npz has them, with the data that they are of."""

    data: DataModule
    stage: Stage
    ids: NDArray[Any]  # (n,)
    targets: NDArray[Any]  # (n, ...)
    outputs: NDArray[Any]  # (n, ...)

    @property
    def title(self) -> str:
        """The split in a picture's title."""
        return {"test": "test data", "val": "validation data"}.get(self.stage, self.stage)

    def examples(self, chosen: NDArray[np.intp]) -> list[Example]:
        """The examples at these positions of the arrays. Raises DataError."""
        return self.data.examples(self.stage, self.ids[chosen].tolist())


def names_or_numbers(names: Sequence[str], count: int) -> tuple[str, ...]:
    """The names, or numbers where the data have none or others."""
    return tuple(names) if len(names) == count else tuple(map(str, range(count)))


def seven_digits(value: float) -> float:
    """A number with the digits that a 32-bit float has."""
    return float(f"{value:.7g}")
