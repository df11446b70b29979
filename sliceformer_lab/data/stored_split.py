"""The part that all splits share whose examples are kept in one store."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from sliceformer_lab.data.loader import Split


@dataclass
class StoredSplit(Split, ABC):
    """Examples that are stored together with those of other splits."""

    rows: np.ndarray = field(kw_only=True)  # (n,) their positions in the store

    def __len__(self) -> int:
        return len(self.rows)

    def subset(self, rows: np.ndarray) -> Self:
        return replace(self, rows=self.rows[rows])
