"""Data that are read once and kept in a cache folder: the bases of their modules and of their splits."""

# No `from __future__ import annotations` in data modules; `data.base` says why.

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from sliceformer_lab.config.option_types import Share
from sliceformer_lab.data.base import FolderData
from sliceformer_lab.data.cache import content_digest
from sliceformer_lab.data.loader import Split


@dataclass
class StoredSplit(Split, ABC):
    """Examples that are stored together with those of other splits."""

    rows: np.ndarray = field(kw_only=True)  # (n,) their positions in the store

    def __len__(self) -> int:
        return len(self.rows)

    def subset(self, rows: np.ndarray) -> Self:
        return replace(self, rows=self.rows[rows])


@dataclass(kw_only=True, eq=False, repr=False)
class CachedData(FolderData):
    """A data set that is read once and then kept in a cache folder, in files that all processes map into memory."""

    facts_file: ClassVar[str] = "facts.json"  # in the cache folder

    @property
    def cache_root(self) -> Path:
        """Where cache folders are made."""
        return self.path

    @abstractmethod
    def prepare(self) -> Path:
        """The cache folder, filled unless an earlier run has filled it. Raises DataError."""

    @cached_property
    def folder(self) -> Path:
        """The cache folder, filled at the first look. Raises DataError."""
        return self.prepare()

    def facts(self) -> dict[str, Any]:
        """What was found when the folder was filled. Raises DataError."""
        found: dict[str, Any] = json.loads((self.folder / self.facts_file).read_text(encoding="utf-8"))
        return found

    def prepare_data(self) -> None:
        """Fill the cache folder. Raises DataError."""
        _ = self.folder

    def content_sha256(self) -> str:
        return content_digest(self.folder)


@dataclass(kw_only=True, eq=False, repr=False)
class BucketedData(CachedData):
    """Cached examples of different lengths; with `bucket`, those of a batch have similar ones."""

    bucket: bool
    bucket_share: Share = 0.15

    @property
    def pool_share(self) -> float | None:  # type: ignore[override]
        return self.bucket_share if self.bucket else None
