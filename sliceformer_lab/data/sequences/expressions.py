"""ListOps: nested lists of digits whose value is asked for (Nangia & Bowman 2018), as the Long Range Arena draws them.

Tay et al. 2021, section 2.2; the numbers are those of its published generator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from itertools import count
from random import Random

from sliceformer_lab.data.parallel import in_order

VERSION = 1  # of the expressions that a seed gives
# The published order is that of a Python set, another one in every run; id = place here, in which 16 never occurs.
VOCABULARY = ("<pad>", "[MIN", "[MAX", "[MED", "[SM", "X", *"0123456789", "<oov>")
OPERATORS = range(1, 5)
END = 5  # of a list; ']' in the published files
DIGITS = range(6, 16)

MAX_DEPTH = 10  # of digits inside lists, the outermost list being at depth 1
MAX_ARGUMENTS = 10
LIST_PROBABILITY = 0.25  # of an argument above MAX_DEPTH, and of the expression itself

DRAWS = 4096  # expressions that one seed draws, most of them of other lengths than asked for
PATIENCE = 50 * DRAWS  # draws without a new expression after which there are no more

_IDS = {symbol: number for number, symbol in enumerate(VOCABULARY)}


def median(values: Sequence[int]) -> int:
    """The middle of the sorted values; between the two middle ones of an even number, without its .5."""
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) // 2


_APPLY: dict[int, Callable[[Sequence[int]], int]] = {1: min, 2: max, 3: median, 4: lambda values: sum(values) % 10}


def ids_of(source: str) -> bytes:
    """Ids of an expression as the published files write it, '( ( [MAX 3 ) 7 ) ] )'. Raises ValueError."""
    symbols = source.replace("(", " ").replace(")", " ").replace("]", "X").split()
    if unknown := [symbol for symbol in symbols if symbol not in _IDS]:
        raise ValueError(f"has {unknown[0]!r}, which is no symbol of ListOps")
    return bytes(_IDS[symbol] for symbol in symbols)


def value_of(ids: bytes) -> int:
    """The digit that an expression comes to. Raises ValueError if it is not one whole expression."""
    opened: list[tuple[int, list[int]]] = [(0, [])]  # lists that are not closed yet: operator and arguments
    for symbol in ids:
        if symbol in OPERATORS:
            opened.append((symbol, []))
        elif symbol in DIGITS:
            opened[-1][1].append(symbol - DIGITS[0])
        elif symbol == END and len(opened) > 1 and opened[-1][1]:
            operator, arguments = opened.pop()
            opened[-1][1].append(_APPLY[operator](arguments))
        else:
            raise ValueError("closes a list that is empty or was never opened")
    if len(opened) != 1 or len(opened[0][1]) != 1:
        raise ValueError("is not one whole expression")
    return opened[0][1][0]


def draw(rng: Random, longest: int) -> bytes | None:
    """One random expression; None as soon as it is longer than `longest` symbols.

    An argument is a list with LIST_PROBABILITY and else a digit, operators, digits and the number of arguments being
    uniform.
    """
    ids = bytearray()
    missing = [1]  # arguments still to be drawn, of each open list; at first the expression itself
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
            ids.append(END)
        if len(ids) > longest:
            return None


def distinct(seed: int, min_len: int, max_len: int, processes: int | None) -> Iterator[tuple[bytes, int]]:
    """Expressions of more than `min_len` and fewer than `max_len` symbols with their values, none of them twice.

    The same ones in the same order for any number of processes. Ends where the draws bring nothing new.
    """
    seen: set[bytes] = set()
    barren = 0
    for found in in_order(partial(_drawn, seed, min_len, max_len), count(), processes):
        new = len(seen)
        for ids, value in found:
            digest = blake2b(ids, digest_size=16).digest()
            if digest not in seen:
                seen.add(digest)
                yield ids, value
        barren = 0 if len(seen) > new else barren + DRAWS
        if barren >= PATIENCE:
            return


def _drawn(seed: int, min_len: int, max_len: int, part: int) -> list[tuple[bytes, int]]:
    """Those of the `part`-th DRAWS expressions of a seed that have a length within the limits, and their values."""
    rng = Random(f"listops {seed} {part}")  # hashed in full, unlike a number made of both
    drawn = (draw(rng, max_len - 1) for _ in range(DRAWS))
    return [(ids, value_of(ids)) for ids in drawn if ids is not None and len(ids) > min_len]
