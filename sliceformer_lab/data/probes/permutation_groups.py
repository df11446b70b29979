"""Groups of permutations and their multiplication tables, for the probe of words."""

from functools import lru_cache
from itertools import permutations

import numpy as np

GROUPS = {6: (3, False), 24: (4, False), 60: (5, True), 120: (5, False)}  # size: letters, even permutations only


@lru_cache
def elements(size: int) -> list[tuple[int, ...]]:
    """The permutations in a group of this size, in lexicographic order."""
    letters, even = GROUPS[size]
    found = list(permutations(range(letters)))
    return [p for p in found if not even or _inversions(p) % 2 == 0]


def _inversions(permutation: tuple[int, ...]) -> int:
    return sum(a > b for i, a in enumerate(permutation) for b in permutation[i + 1 :])


@lru_cache
def products(size: int) -> np.ndarray:
    """Multiplication table (size, size): the first permutation, then the second."""
    found = elements(size)
    number = {element: index for index, element in enumerate(found)}
    return np.array([[number[tuple(second[i] for i in first)] for second in found] for first in found])
