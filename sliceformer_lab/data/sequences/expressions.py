"""Expressions of ListOps: nested lists of digits and their values, drawn as in the Long Range Arena.

Source: Nangia & Bowman 2018; Tay et al. 2021, section 2.2. The constants are those of its published generator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from itertools import count
from random import Random
from statistics import median

from sliceformer_lab.data.parallel import in_order

VERSION = 1  # of the expressions that a seed gives
# An id is a position in this tuple. The published code uses the order of a Python set, which differs between runs.
VOCABULARY = ("<pad>", "[MIN", "[MAX", "[MED", "[SM", "X", *"0123456789", "<oov>")
OPERATORS = range(1, 5)
END_OF_LIST = 5  # of a list; ']' in the published files
DIGITS = range(6, 16)

MAX_DEPTH = 10  # of digits; the outermost list has depth 1
MAX_ARGUMENTS = 10
LIST_PROBABILITY = 0.25  # of an argument above MAX_DEPTH, and of the expression itself

DRAWS_PER_SEED = 4096  # expressions that one seed draws; most of them have other lengths than requested
MAX_FRUITLESS_DRAWS = 50 * DRAWS_PER_SEED  # draws without a new expression after which the search ends

_IDS = {symbol: number for number, symbol in enumerate(VOCABULARY)}
_APPLY: dict[int, Callable[[Sequence[int]], int]] = {
    1: min,
    2: max,
    3: lambda values: int(median(values)),  # between two middle digits, rounded down
    4: lambda values: sum(values) % 10,
}


def ids_of(source: str) -> bytes:
    """Ids of an expression in the notation of the published files, '( ( [MAX 3 ) 7 ) ] )'. Raises ValueError."""
    symbols = source.replace("(", " ").replace(")", " ").replace("]", "X").split()
    if unknown := [symbol for symbol in symbols if symbol not in _IDS]:
        raise ValueError(f"has {unknown[0]!r}, which is not a symbol of ListOps")
    return bytes(_IDS[symbol] for symbol in symbols)


def source_of(ids: Iterable[int]) -> str:
    """The expression of some ids, '[MAX 3 7 ]'; `ids_of` reads it back."""
    return " ".join("]" if symbol == END_OF_LIST else VOCABULARY[symbol] for symbol in ids)


def value_of(ids: bytes) -> int:
    """The digit that an expression evaluates to. Raises ValueError if it is not one complete expression."""
    opened: list[tuple[int, list[int]]] = [(0, [])]  # open lists: operator and arguments
    for symbol in ids:
        if symbol in OPERATORS:
            opened.append((symbol, []))
        elif symbol in DIGITS:
            opened[-1][1].append(symbol - DIGITS[0])
        elif symbol == END_OF_LIST and len(opened) > 1 and opened[-1][1]:
            operator, arguments = opened.pop()
            opened[-1][1].append(_APPLY[operator](arguments))
        else:
            raise ValueError("closes a list that is empty or was never opened")
    if len(opened) != 1 or len(opened[0][1]) != 1:
        raise ValueError("is not one complete expression")
    return opened[0][1][0]


def draw(rng: Random, longest: int) -> bytes | None:
    """One random expression, or None if it becomes longer than `longest` symbols.

    An argument is a list with LIST_PROBABILITY, otherwise a digit. Operators, digits and numbers of arguments are
    uniform.
    """
    ids = bytearray()
    missing = [1]  # arguments still to be drawn of each open list, starting with the expression itself
    while True:
        if missing[-1]:
            missing[-1] -= 1
            if len(missing) < MAX_DEPTH and rng.random() <= LIST_PROBABILITY:
                ids.append(OPERATORS[int(rng.random() * len(OPERATORS))])
                missing.append(2 + int(rng.random() * (MAX_ARGUMENTS - 1)))
            else:
                ids.append(DIGITS[int(rng.random() * len(DIGITS))])
        else:
            missing.pop()
            if not missing:
                return bytes(ids)
            ids.append(END_OF_LIST)
        if len(ids) > longest:
            return None


def distinct(seed: int, min_len: int, max_len: int, processes: int | None) -> Iterator[tuple[bytes, int]]:
    """Different expressions of more than `min_len` and fewer than `max_len` symbols, with their values.

    They are the same in the same order for any number of processes, and end when the draws find no new ones.
    """
    seen: set[bytes] = set()
    without_new = 0  # draws
    for found in in_order(partial(_draw_part, seed, min_len, max_len), count(), processes):
        before = len(seen)
        for ids, value in found:
            digest = blake2b(ids, digest_size=16).digest()
            if digest not in seen:
                seen.add(digest)
                yield ids, value
        without_new = 0 if len(seen) > before else without_new + DRAWS_PER_SEED
        if without_new >= MAX_FRUITLESS_DRAWS:
            return


def _draw_part(seed: int, min_len: int, max_len: int, part: int) -> list[tuple[bytes, int]]:
    """The expressions within the limits among the `part`-th DRAWS_PER_SEED expressions of a seed, with their values."""
    rng = Random(f"listops {seed} {part}")  # Random hashes the whole string
    drawn = (draw(rng, max_len - 1) for _ in range(DRAWS_PER_SEED))
    return [(ids, value_of(ids)) for ids in drawn if ids is not None and len(ids) > min_len]
