"""The probe of spatial recall: a canvas of tokens shows objects, and the question is about the marked one."""

from math import isqrt
from typing import ClassVar

import numpy as np

from sliceformer_lab.data.probes.base import Levels, Sizes, SymbolProbe, blank_sequences
from sliceformer_lab.data.probes.floors import commonest_share

OBJECT_SIDE_TOKENS = 2  # tokens of an object's side


class SpatialRecall(SymbolProbe):
    """Objects of 2 x 2 symbols on a square canvas, read row by row. The last 2 x 2 tokens ask for the marked object.

    Each asks for the symbol at its own place in the object, so that both a look-up by content (the mark) and a place
    are needed. Objects stand at random places of a grid of 2 x 2 tokens. Idea: the spatial recall of nvSubquadratic,
    whose canvas has 64 x 64 pixels with digits of 16 x 16, to be regressed. Symbols and sizes are ours.
    """

    levels: ClassVar[Levels] = {
        "easy": Sizes(16, vocabulary=8, items=2),
        "standard": Sizes(64, vocabulary=16, items=4),
        "hard": Sizes(256, vocabulary=32, items=16),
    }
    grouped_by = "distance"

    @property
    def vocab_size(self) -> int:
        return self.sizes.vocabulary + 3  # nothing, symbols, question, mark

    @property
    def bag_level(self) -> float:
        """That of guessing the commonest symbol of the marked object."""
        return commonest_share(OBJECT_SIDE_TOKENS**2, self.sizes.vocabulary)

    @property
    def per_side(self) -> int:
        """Objects that fit side by side."""
        return isqrt(self.sizes.max_len) // OBJECT_SIDE_TOKENS

    def fault(self) -> str | None:
        length, items = self.sizes.max_len, self.sizes.items
        if (OBJECT_SIDE_TOKENS * self.per_side) ** 2 != length or self.per_side < 2:
            return f"max_len={length} is no square canvas with an even side; try 16, 36, 64, 100, 144 or 256"
        most = self.per_side**2 - 1
        return None if items <= most else f"items={items} objects do not fit beside the question; at most {most} do"

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        sizes, tokens = self.sizes, self._tokens()
        places = rng.random((count, len(tokens) - 1)).argsort(1)[:, : sizes.items]
        symbols = rng.integers(0, sizes.vocabulary, (count, sizes.items, OBJECT_SIDE_TOKENS**2))
        inputs, targets = blank_sequences(count, sizes.max_len, 2)
        rows = np.arange(count)[:, None]
        inputs[rows[..., None], tokens[places], 0] = 1 + symbols
        inputs[rows, tokens[places[:, 0]], 1] = sizes.vocabulary + 2  # the first object is marked
        inputs[:, tokens[-1], 0] = sizes.vocabulary + 1
        targets[:, tokens[-1]] = symbols[:, 0]
        return inputs, targets

    def groups(self, inputs: np.ndarray) -> np.ndarray:
        """Rows and columns from the marked object to the question, in tokens."""
        side = OBJECT_SIDE_TOKENS * self.per_side
        first = (inputs[..., 1] > 0).argmax(1)
        distance = 2 * (side - OBJECT_SIDE_TOKENS) - first // side - first % side
        return np.broadcast_to(distance[:, None], inputs.shape[:2])

    def _tokens(self) -> np.ndarray:
        """The tokens (places, 4) of each place of an object, row by row."""
        n = self.per_side
        grid = np.arange((OBJECT_SIDE_TOKENS * n) ** 2).reshape(n, OBJECT_SIDE_TOKENS, n, OBJECT_SIDE_TOKENS)
        return grid.transpose(0, 2, 1, 3).reshape(n * n, OBJECT_SIDE_TOKENS**2)
