"""What every probe has: sizes, levels, floors, and a generator of sequences."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, Literal

import numpy as np

from sliceformer_lab.batch import NO_CLASS

Level = Literal["easy", "standard", "hard"]


@dataclass(frozen=True)
class Sizes:
    """How large a probe is. A probe leaves the sizes that it does not have at 0."""

    max_len: int  # tokens
    vocabulary: int = 0  # different symbols; of words: elements of the group
    pairs: int = 0  # of a key and a value
    items: int = 0  # marks at most, or symbols to copy
    distance: int = 0  # in tokens
    neighbours: bool = False  # key and value in two neighbouring tokens, not in one

    @property
    def label(self) -> str:
        """The sizes in a name: n32_v16_d5."""
        return "_".join(f"{f.name[0]}{int(v)}" for f in fields(self) if (v := getattr(self, f.name)))


Levels = Mapping[Level, Sizes]


class Probe(ABC):
    """One generator. Ids (n, N), or (n, N, 2) with two symbols in a token, or numbers (n, N, 1)."""

    levels: ClassVar[Levels]
    grouped_by: ClassVar[str] = "position"  # what accuracy is listed by

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes

    @classmethod
    def size_names(cls) -> tuple[str, ...]:
        """The sizes that this probe has."""
        return tuple(f.name for f in fields(Sizes) if any(getattr(sizes, f.name) for sizes in cls.levels.values()))

    @property
    @abstractmethod
    def classes(self) -> int:
        """Number of different answers; 0 where they are numbers."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Number of ids; 0 where tokens are numbers."""

    @property
    @abstractmethod
    def chance(self) -> float:
        """The best accuracy from the asked token and its position."""

    @property
    @abstractmethod
    def bag_level(self) -> float | None:
        """The best accuracy from the set of symbols without their arrangement; None where that is not defined."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets (count, N) of new sequences; NO_CLASS where there is no question."""

    def fault(self) -> str | None:
        """Why these sizes are impossible, with one that would work; None if they are possible."""
        return None

    def groups(self, inputs: np.ndarray) -> np.ndarray:
        """The group (n, N) of each answer, by which accuracy is listed."""
        return np.broadcast_to(np.arange(inputs.shape[1]), inputs.shape[:2])


class SymbolProbe(Probe):
    """A probe whose tokens and answers are the same symbols; chance is that of answers that no asked token knows."""

    @property
    def classes(self) -> int:
        return self.sizes.vocabulary

    @property
    def vocab_size(self) -> int:
        return self.sizes.vocabulary

    @property
    def chance(self) -> float:
        return 1 / self.sizes.vocabulary


def blank_sequences(count: int, length: int, symbols: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Inputs of zeros (count, length) or (count, length, symbols), and targets without a question."""
    shape = (count, length) if symbols == 1 else (count, length, symbols)
    return np.zeros(shape, np.int64), np.full((count, length), NO_CLASS)
