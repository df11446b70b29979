"""Graphs that torch-geometric downloads and prepares in a folder: the base of their modules."""

# No `from __future__ import annotations` in data modules; `data.base` says why.

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sliceformer_lab.data.cache import digest_of_stamps
from sliceformer_lab.data.download import lock_preparation
from sliceformer_lab.data.graphs.base import GraphData
from sliceformer_lab.data.splits import Stage

PREPARED = "processed"  # begins the names of folders of what torch-geometric has prepared


@dataclass(kw_only=True, eq=False, repr=False)
class PygFiles(GraphData):
    """A set of torch-geometric, which a subclass reads.

    torch-geometric never looks whether the files that it prepared a set from are still the same. So our cache is known
    by these files, and torch-geometric prepares them again whenever our cache is made.
    """

    @property
    @abstractmethod
    def set_folder(self) -> Path | None:
        """The folder of the set's files; None if it has none."""

    @abstractmethod
    def read_set(self, *, again: bool) -> list[tuple[Stage | None, Any]]:
        """The graphs of each split of the set, or all; with `again` prepared from its files. Raises DataError."""

    @cached_property
    def parts(self) -> list[tuple[Stage | None, Any]]:
        """The graphs of each split of the set, or all, as its files are now. Raises DataError."""
        return self.read_set(again=bool(self._files(prepared=False)))

    def stamps(self) -> str:
        """One sha256 of the stamps of the set's files, which are downloaded if there are none. Raises DataError."""
        if self.set_folder is not None and not self._files(prepared=True):
            with lock_preparation(self.path):
                if not self._files(prepared=True):  # another process may have downloaded it meanwhile
                    _ = self.parts
        return digest_of_stamps(self._files(prepared=False) or self._files(prepared=True))  # some keep the latter alone

    def _files(self, *, prepared: bool) -> list[Path]:
        """The set's files, with those that torch-geometric has `prepared` or without."""
        if (root := self.set_folder) is None:
            return []
        files = sorted(file for file in root.rglob("*") if file.is_file())
        return [file for file in files if prepared or not _is_prepared(file.relative_to(root))]

    def _build(self, folder: Path) -> None:
        super()._build(folder)
        vars(self).pop("parts", None)  # which torch-geometric holds in memory


def _is_prepared(file: Path) -> bool:
    return any(folder.name.startswith(PREPARED) for folder in file.parents)
