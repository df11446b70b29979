"""The probes: generators of sequences whose answers stand at single tokens.

Numbers and ideas: our specification of the probes, which names zoology (associative recall), mad-lab (selective
copying), 2407.11542 (histogram) and 2404.08819 (words of a group) as sources.
"""

from functools import lru_cache
from itertools import combinations, permutations
from typing import ClassVar

import numpy as np

from sliceformer_lab.batch import NO_CLASS
from sliceformer_lab.data.probes.base import Levels, Probe, Sizes, SymbolProbe, blank_sequences
from sliceformer_lab.data.probes.floors import commonest_count, commonest_share, nearest_rank


class Count(Probe):
    """How many of the tokens are marked? The last token asks. Checks the wiring: all that mix solve it."""

    levels: ClassVar[Levels] = {"easy": Sizes(8, items=4), "standard": Sizes(16, items=8), "hard": Sizes(64, items=32)}
    grouped_by = "answer"
    vocab_size = 3  # slot, mark, question
    bag_level = 1.0

    @property
    def classes(self) -> int:
        return self.sizes.items + 1

    @property
    def chance(self) -> float:
        return 1 / self.classes

    def fault(self) -> str | None:
        items, tokens = self.sizes.items, self.sizes.max_len
        fault = f"items={items} marks do not fit before the last of {tokens} tokens; at most {tokens - 1} do"
        return fault if items >= tokens else None

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        slots = self.sizes.max_len - 1
        marks = rng.integers(0, self.classes, count)
        inputs, targets = blank_sequences(count, self.sizes.max_len)
        inputs[:, :slots] = rng.random((count, slots)).argsort(1) < marks[:, None]
        inputs[:, slots], targets[:, slots] = 2, marks
        return inputs, targets

    def groups(self, inputs: np.ndarray) -> np.ndarray:
        return np.broadcast_to((inputs == 1).sum(1, keepdims=True), inputs.shape)


class Recall(SymbolProbe):
    """Keys with a value each, then some of the keys alone: which value was it? Associative recall.

    A value belongs to its key's token. With `neighbours` it stands in the token after it, which is much harder.
    """

    levels: ClassVar[Levels] = {
        "easy": Sizes(16, vocabulary=16, pairs=4),
        "standard": Sizes(32, vocabulary=32, pairs=8),
        "hard": Sizes(64, vocabulary=64, pairs=16, neighbours=True),
    }
    grouped_by = "distance"

    @property
    def vocab_size(self) -> int:
        return 1 + 2 * self.sizes.vocabulary  # nothing, keys, values

    @property
    def bag_level(self) -> float:
        return commonest_share(self.sizes.pairs, self.sizes.vocabulary)

    def fault(self) -> str | None:
        sizes = self.sizes
        if 4 * sizes.pairs > sizes.max_len:
            return (
                f"pairs={sizes.pairs} need {4 * sizes.pairs} tokens, and max_len={sizes.max_len}; at most a quarter "
                f"of the tokens may be pairs, as pairs={max(1, sizes.max_len // 4)}"
            )
        if sizes.pairs > sizes.vocabulary:
            return f"pairs={sizes.pairs} need as many different keys, and vocabulary={sizes.vocabulary}"
        return None

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        pairs, symbols, length = self.sizes.pairs, self.sizes.vocabulary, self.sizes.max_len
        used = pairs * (1 + self.sizes.neighbours)
        keys = rng.random((count, symbols)).argsort(1)[:, :pairs]
        values = rng.integers(0, symbols, (count, pairs))
        places = used + rng.random((count, length - used)).argsort(1)[:, :pairs]  # of the pairs' questions
        rows = np.arange(count)[:, None]
        inputs, targets = blank_sequences(count, length, 2)
        inputs[:, :used:, 0][:, :: 1 + self.sizes.neighbours] = 1 + keys
        inputs[rows, places, 0] = 1 + keys
        targets[rows, places] = values
        if self.sizes.neighbours:
            inputs[:, 1:used:2, 0] = 1 + symbols + values
            return inputs[..., 0], targets
        inputs[:, :used, 1] = 1 + symbols + values
        return inputs, targets

    def groups(self, inputs: np.ndarray) -> np.ndarray:
        """Tokens from the key of a pair to its question."""
        ids = inputs if self.sizes.neighbours else inputs[..., 0]
        first = (ids[:, :, None] == ids[:, None, :]).argmax(2)
        return np.asarray(np.arange(ids.shape[1]) - first)


class Back(SymbolProbe):
    """Which symbol stood `distance` tokens before? A shift."""

    levels: ClassVar[Levels] = {
        "easy": Sizes(16, vocabulary=16, distance=3),
        "standard": Sizes(32, vocabulary=16, distance=5),
        "hard": Sizes(512, vocabulary=16, distance=37),
    }

    @property
    def bag_level(self) -> float:
        return commonest_share(self.sizes.max_len - 1, self.sizes.vocabulary)

    def fault(self) -> str | None:
        distance, tokens = self.sizes.distance, self.sizes.max_len
        fault = f"distance={distance} reaches no token of {tokens}; set a max_len above {distance}"
        return fault if distance >= tokens else None

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        inputs = rng.integers(0, self.sizes.vocabulary, (count, self.sizes.max_len))
        targets = np.full_like(inputs, NO_CLASS)
        targets[:, self.sizes.distance :] = inputs[:, : self.sizes.max_len - self.sizes.distance]
        return inputs, targets


class Rank(Probe):
    """The i-th smallest of uniform numbers at position i. Right if no other number is nearer to the output."""

    levels: ClassVar[Levels] = {"easy": Sizes(8), "standard": Sizes(16), "hard": Sizes(64)}
    classes = vocab_size = 0
    bag_level = 1.0

    @property
    def chance(self) -> float:
        return nearest_rank(self.sizes.max_len)

    def fault(self) -> str | None:
        fits = 2 <= self.sizes.max_len <= 1000
        return None if fits else f"max_len={self.sizes.max_len}: rank orders 2 to 1000 numbers"

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        numbers = ((rng.random((count, self.sizes.max_len)) - 0.5) * 12**0.5).astype(np.float32)  # variance 1
        return numbers[..., None], np.sort(numbers, axis=1)


class Select(SymbolProbe):
    """Symbols at random places among blanks, then as many questions: the j-th asks for the j-th symbol."""

    levels: ClassVar[Levels] = {
        "easy": Sizes(16, vocabulary=8, items=4),
        "standard": Sizes(32, vocabulary=8, items=8),
        "hard": Sizes(256, vocabulary=16, items=64),
    }

    @property
    def vocab_size(self) -> int:
        return self.sizes.vocabulary + 2  # symbols, blank, question

    @property
    def bag_level(self) -> float:
        return commonest_share(self.sizes.items, self.sizes.vocabulary)

    def fault(self) -> str | None:
        items, tokens = self.sizes.items, self.sizes.max_len
        fault = f"items={items} and as many questions need {2 * items} tokens, and max_len={tokens}"
        return fault if 2 * items > tokens else None

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        symbols, items, slots = self.sizes.vocabulary, self.sizes.items, self.sizes.max_len - self.sizes.items
        inputs, targets = blank_sequences(count, self.sizes.max_len)
        inputs[:, :slots], inputs[:, slots:] = symbols, symbols + 1
        drawn = rng.integers(0, symbols, (count, items))
        places = np.sort(rng.random((count, slots)).argsort(1)[:, :items], axis=1)
        inputs[np.arange(count)[:, None], places] = drawn
        targets[:, slots:] = drawn
        return inputs, targets


class Hist(Probe):
    """How often does one's own symbol occur? Once, twice, ... to eight times and more."""

    levels: ClassVar[Levels] = {
        "easy": Sizes(8, vocabulary=4),
        "standard": Sizes(16, vocabulary=8),
        "hard": Sizes(64, vocabulary=64),
    }
    grouped_by = "answer"
    classes = 8
    bag_level = 1.0

    @property
    def vocab_size(self) -> int:
        return self.sizes.vocabulary

    @property
    def present(self) -> range:
        """The numbers of different symbols that a sequence may be drawn from."""
        return range(max(2, 3 * self.sizes.vocabulary // 8), self.sizes.vocabulary + 1)

    @property
    def chance(self) -> float:
        return commonest_count(self.sizes.max_len, self.present, self.classes)

    def fault(self) -> str | None:
        return "vocabulary=1 has nothing to tell apart; set at least 2" if self.sizes.vocabulary < 2 else None

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        symbols, length = self.sizes.vocabulary, self.sizes.max_len
        present = rng.integers(self.present.start, self.present.stop, (count, 1))
        order = rng.random((count, symbols)).argsort(1)
        inputs = np.take_along_axis(order, (rng.random((count, length)) * present).astype(np.int64), axis=1)
        return inputs, np.minimum(self._count_occurrences(inputs), self.classes) - 1

    def _count_occurrences(self, inputs: np.ndarray) -> np.ndarray:
        return np.asarray((inputs[:, :, None] == inputs[:, None, :]).sum(2))

    def groups(self, inputs: np.ndarray) -> np.ndarray:
        return np.asarray(np.minimum(self._count_occurrences(inputs), self.classes))


GROUPS = {6: (3, False), 24: (4, False), 60: (5, True), 120: (5, False)}  # size: letters, even permutations only


@lru_cache
def elements(size: int) -> list[tuple[int, ...]]:
    """The permutations in a group of this size, in lexicographic order."""
    letters, even = GROUPS[size]
    found = list(permutations(range(letters)))
    return [p for p in found if not even or sum(a > b for a, b in combinations(p, 2)) % 2 == 0]


@lru_cache
def products(size: int) -> np.ndarray:
    """Multiplication table (size, size): the first permutation, then the second."""
    found = elements(size)
    number = {element: index for index, element in enumerate(found)}
    return np.array([[number[tuple(second[i] for i in first)] for second in found] for first in found])


class Words(SymbolProbe):
    """Elements of a group; the answer at i is the product of the first i. State tracking."""

    levels: ClassVar[Levels] = {
        "easy": Sizes(4, vocabulary=6),
        "standard": Sizes(8, vocabulary=6),
        "hard": Sizes(16, vocabulary=60),
    }
    bag_level = None  # the product depends on the order

    @property
    def chance(self) -> float:
        """The first answer is the token itself; a product with a uniform factor is uniform."""
        return (1 + (self.sizes.max_len - 1) / self.sizes.vocabulary) / self.sizes.max_len

    def fault(self) -> str | None:
        if self.sizes.vocabulary in GROUPS:
            return None
        known = "6 (S3), 24 (S4), 60 (A5) or 120 (S5)"
        return f"vocabulary={self.sizes.vocabulary} is the size of no group here; choose {known}"

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        table = products(self.sizes.vocabulary)
        inputs = rng.integers(0, self.sizes.vocabulary, (count, self.sizes.max_len))
        targets = inputs.copy()
        for place in range(1, self.sizes.max_len):
            targets[:, place] = table[targets[:, place - 1], inputs[:, place]]
        return inputs, targets


KINDS: tuple[type[Probe], ...] = (Count, Recall, Back, Rank, Select, Hist, Words)
PROBES = {kind.__name__.lower(): kind for kind in KINDS}
