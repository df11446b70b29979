"""Tables of texts whose answer needs a known ability, for comparisons whose verdict is known."""

from __future__ import annotations

import csv
import random
from collections.abc import Callable
from pathlib import Path

COLOURS = ("red", "green", "blue", "yellow")
MARKERS = ("alpha", "beta", "gamma", "delta")
FILLERS = tuple(f"word{number}" for number in range(20))
LEXICON = {"good": ("bright", "kind", "calm", "warm"), "bad": ("dull", "cruel", "harsh", "cold")}


def write_order_table(file: Path, count: int = 1200) -> Path:
    """Each text has all colours and all markers; the label is the colour that follows `alpha`."""
    return _write(file, count, _ordered_text)


def write_bag_table(file: Path, count: int = 1200) -> Path:
    """The label is the list that more words of a text are from, wherever they are."""
    return _write(file, count, _lexical_text)


def _ordered_text(generator: random.Random) -> tuple[str, str]:
    colours = generator.sample(COLOURS, len(COLOURS))
    pairs = [f"{marker} {colour}" for marker, colour in zip(MARKERS, colours, strict=True)]
    parts = [*pairs, *generator.choices(FILLERS, k=12)]
    generator.shuffle(parts)
    return " ".join(parts), colours[0]


def _lexical_text(generator: random.Random) -> tuple[str, str]:
    label, other = generator.sample(sorted(LEXICON), 2)
    words = [*generator.choices(LEXICON[label], k=3), *generator.choices(LEXICON[other], k=1)]
    words += generator.choices(FILLERS, k=12)
    generator.shuffle(words)
    return " ".join(words), label


def _write(file: Path, count: int, draw: Callable[[random.Random], tuple[str, str]]) -> Path:
    generator = random.Random(0)
    with file.open("w", newline="", encoding="utf-8") as table:
        csv.writer(table).writerows([("text", "label"), *(draw(generator) for _ in range(count))])
    return file
