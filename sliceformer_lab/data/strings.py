"""Where examples come from: strings in memory-mapped files, or numbered from zero."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

CONTENT = "_utf8.npy"  # ends the name of the file with the bytes


class Places(Protocol):
    """The place of every example of a source, for people."""

    def __getitem__(self, row: int) -> str: ...


@dataclass(frozen=True)
class Numbered:
    """Places that need no file: `name` and a number."""

    name: str  # such as "test picture" or "pairs.tsv, line"
    first: int = 0

    def __getitem__(self, row: int) -> str:
        return f"{self.name} {row + self.first}"


UNKNOWN = Numbered("example")  # the places of examples about which nothing else is known


@dataclass(frozen=True)
class Strings:
    """Many strings in two files that all processes map into memory: their UTF-8 bytes, and where each one starts."""

    content: np.ndarray  # (total,) uint8
    offsets: np.ndarray  # (n + 1,) int64

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> str:
        return self.content[self.offsets[row] : self.offsets[row + 1]].tobytes().decode()

    @classmethod
    def open(cls, folder: Path, name: str) -> Self:
        """The strings that `write` stored under this name."""
        content, offsets = _list_files(folder, name)
        return cls(np.load(content, mmap_mode="r"), np.load(offsets, mmap_mode="r"))

    @staticmethod
    def write(folder: Path, name: str, strings: Iterable[str]) -> None:
        """Write strings into a folder."""
        encoded = [string.encode() for string in strings]
        content, offsets = _list_files(folder, name)
        np.save(content, np.frombuffer(b"".join(encoded), np.uint8))
        np.save(offsets, np.cumsum([0, *map(len, encoded)], dtype=np.int64))

    def __reduce__(self) -> tuple[Any, ...]:
        """Unpickling maps the files again; otherwise a worker that is not forked would get a copy of them."""
        content = Path(self.content.filename)  # type: ignore[attr-defined]
        return Strings.open, (content.parent, content.name.removesuffix(CONTENT))


def _list_files(folder: Path, name: str) -> tuple[Path, Path]:
    return folder / f"{name}{CONTENT}", folder / f"{name}_offsets.npy"
