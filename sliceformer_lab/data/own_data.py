"""The base of a user's own data: their name, and a count of what two splits share."""

# No `from __future__ import annotations` in data modules; `data.base` says why.

import math
import re
import unicodedata
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import Field

from sliceformer_lab.config.option_types import Count, Fraction
from sliceformer_lab.data.base import DataModule, FolderData
from sliceformer_lab.data.cache import by_name
from sliceformer_lab.data.cached_data import CachedData
from sliceformer_lab.data.class_names import ClassFiles, class_names, is_of_system, labelled_files, stage_folders
from sliceformer_lab.data.loader import Split
from sliceformer_lab.data.spec import ContentKind
from sliceformer_lab.data.splits import Stage
from sliceformer_lab.data.table_files import SPLIT_COLUMN, has_split_column
from sliceformer_lab.runs.files import name_of
from sliceformer_lab.runs.plain_text import counted

Name = Annotated[str, Field(pattern=r"^[^/\\\s][^/\\\n]*$")]  # part of the name of a run's folder
Column = str | Count  # of a table: its name, or its number from 1 in a table without a header

MAX_SAMPLED_EXAMPLES = 100  # training examples that decide options left null
NUMERAL = re.compile(r"[+-]?\d+(\.\d*)?")
PLURALS: dict[ContentKind, str] = {
    "text": "texts",
    "smiles": "molecules",
    "picture": "pictures",
    "cloud": "clouds",
    "series": "series",
}
Item = TypeVar("Item")


def sample_evenly(items: Sequence[Item]) -> Sequence[Item]:
    """Up to MAX_SAMPLED_EXAMPLES of some items, spread over all of them."""
    return items[:: math.ceil(len(items) / MAX_SAMPLED_EXAMPLES)]


@dataclass(kw_only=True, eq=False, repr=False)
class OwnData(DataModule):
    """A user's own data. Their name is `name`, or that of their file or folder. They are no copy of a published set.

    A subclass names this as its last base: a dataclass takes defaults from its first bases.
    """

    note: ClassVar[str]  # of the fingerprint: what its sha256 is of

    name: Name | None = None
    test_fraction: Fraction = 0.1

    @property
    @abstractmethod
    def origin(self) -> Path:
        """The file or folder of the data."""

    @property
    def test_share(self) -> float:
        return self.test_fraction

    def is_official(self) -> tuple[None, str]:
        return None, self.note

    @property
    def own_name(self) -> str:
        """The name of the data in `spec`, in the summary and in reports."""
        return self.name or name_of(self.origin)

    def remarks(self) -> list[str]:
        """Counts the examples that are in two splits, by their content; names classes written alike or never scored."""
        names = () if self.spec.targets == "next tokens" else self.class_names()
        unscored = [*_describe_spellings(names), *_describe_unscored(names, self.splits)]
        if self.content_kind is None:
            return [*super().remarks(), *unscored]
        hashes = {stage: [*map(hash, self.contents(stage))] for stage in self.splits}
        kind = PLURALS[self.content_kind]
        return [*super().remarks(), *_describe_trained(hashes, kind), *_describe_selecting(hashes, kind), *unscored]

    def contents(self, stage: Stage) -> Iterator[bytes]:
        """The content of each example of a split, which equal examples have alike."""
        return self.splits[stage].contents()


@dataclass(kw_only=True, eq=False, repr=False)
class OwnFolder(CachedData, OwnData):
    """A user's own files in the folder `root`, which are prepared in the folder `cache`."""

    cache: str

    @property
    def origin(self) -> Path:
        return self.path

    @property
    def cache_root(self) -> Path:
        return Path(self.cache).expanduser()


@dataclass(kw_only=True, eq=False, repr=False)
class ClassFolders(FolderData, OwnData):
    """A user's own files: root/CLASS, or root/train/CLASS, also root/val/CLASS and root/test/CLASS."""

    endings: ClassVar[Collection[str]]
    examples_are: ClassVar[str]  # in the plural, for messages

    def folder_classes(self) -> list[str]:
        """The classes of the training folder, or of `root` if there is no such folder. Raises DataError."""
        return class_names(stage_folders(self.path)["train"])

    @cached_property
    def class_files(self) -> dict[Stage, ClassFiles]:
        """The files of each split that has a folder. Raises DataError naming a folder."""
        classes = self.folder_classes()
        return {
            stage: labelled_files(folder, classes, self.endings, self.examples_are)
            for stage, folder in stage_folders(self.path).items()
        }

    @property
    def files(self) -> list[Path]:
        """The files of all splits. Raises DataError."""
        return [path for files in self.class_files.values() for path, _ in files]

    def remarks(self) -> list[str]:
        """Counts the files that are no example, but hidden ones, notes of the system and texts in `root` itself."""
        examples, found = set(self.files), super().remarks()
        loose = (path for path in self.path.glob("*") if path.suffix.lower() in set(self.endings) - {".txt"})
        others = (
            path.relative_to(self.path)
            for path in sorted([*self.path.glob("*/**/*"), *loose])
            if path not in examples and path.is_file()
        )
        if unread := [path for path in others if not any(map(is_of_system, path.parts))]:
            found.append(
                f"{self.path} has {counted(len(unread), 'file')} more that no split reads, such as {unread[0]}: "
                f"{self.examples_are} lie directly in the folder of their class, and not all endings can be read"
            )
        return found


@dataclass(kw_only=True, eq=False, repr=False)
class OwnTable(OwnData):
    """A user's own table."""

    file: str
    split_column: Column | None = None

    @property
    def origin(self) -> Path:
        return Path(self.file).expanduser()

    @property
    def defines_splits(self) -> bool:
        """Whether the options name what defines the splits."""
        return self.split_column is not None

    def remarks(self) -> list[str]:
        """Names a column that looks as if it defined the splits, if none does."""
        if self.defines_splits or not has_split_column(self.origin):
            return super().remarks()
        unread = (
            f"{self.origin} has a column {SPLIT_COLUMN}, which is not read: data.split_column={SPLIT_COLUMN} uses it"
        )
        return [*super().remarks(), unread]


@dataclass(kw_only=True, eq=False, repr=False)
class OwnTables(OwnTable):
    """A user's own table, and perhaps one for each other split.

    Raises ValueError if both a column and files define the splits.
    """

    val_file: str | None = None
    test_file: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.split_column is not None and (self.val_file or self.test_file):
            raise ValueError("split_column and val_file or test_file both define the splits; set one to null")

    @property
    def defines_splits(self) -> bool:
        return super().defines_splits or bool(self.val_file or self.test_file)

    @property
    def files(self) -> dict[Stage, Path]:
        """The table of each split."""
        named: dict[Stage, str | None] = {"train": self.file, "val": self.val_file, "test": self.test_file}
        return {stage: Path(name).expanduser() for stage, name in named.items() if name}

    def known_by(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """What identifies the tables and the columns that are read, for the key of a cache."""
        return {"files": {stage: by_name([path]) for stage, path in self.files.items()}, "columns": columns}


def _describe_spellings(names: Sequence[str]) -> list[str]:
    """A sentence for each group of classes that differ only in spaces, capital letters, accents' codes or zeros."""
    spellings: dict[str, list[str]] = {}
    for name in names:
        plain = unicodedata.normalize("NFC", " ".join(name.split()).casefold())
        plain = str(float(plain)) if NUMERAL.fullmatch(plain) else plain
        spellings.setdefault(plain, []).append(
            ascii(name) if name != unicodedata.normalize("NFC", name) else repr(name)
        )
    return [
        f"{', '.join(alike)} are different classes, which differ only in spaces, capital letters, how letters are "
        "coded, or zeros; if they are one, write them alike"
        for alike in spellings.values()
        if len(alike) > 1
    ]


def _describe_unscored(names: Sequence[str], splits: Mapping[Stage, Split]) -> list[str]:
    """A sentence for the classes that validation, test or both lack; none for targets at single tokens or pixels."""
    lacking: dict[tuple[str, ...], list[str]] = {}  # classes -> the splits that lack them
    for stage in ("val", "test") if names else ():
        split = splits[stage]
        if len(split) and split.targets_at([0]).ndim == 1:  # one first: masks are files
            there = set(split.targets_at(list(range(len(split)))).tolist())
            absent = tuple(name for number, name in enumerate(names) if number not in there)
            lacking.setdefault(absent, []).append(stage)
    return [
        f"no {' or '.join(stages)} example has {f'the class {absent[0]!r}' if len(absent) == 1 else ''}"
        f"{f'{len(absent):,} of the {len(names):,} classes, such as {absent[0]!r}' if len(absent) > 1 else ''}, so "
        "scores say nothing of what is missing; add examples, or leave these classes out"
        for absent, stages in lacking.items()
        if absent
    ]


def _describe_trained(hashes: Mapping[Stage, list[int]], kind: str) -> list[str]:
    """A sentence that counts the contents of the other splits that are training contents too."""
    training = set(hashes["train"])
    counts = {stage: (len(found), sum(map(training.__contains__, found))) for stage, found in hashes.items()}
    parts = {stage: pair for stage, pair in counts.items() if stage != "train"}
    if not any(again for _, again in parts.values()):
        return []
    size, again = (sum(column) for column in zip(*parts.values(), strict=True))
    listed = ", ".join(f"{again:,} of {size:,} {stage}" for stage, (size, again) in sorted(parts.items(), reverse=True))
    return [
        f"{again:,} of {size:,} validation and test {kind} are also training {kind} ({listed}), so a model can know "
        "their answers by heart; keep each in one split"
    ]


def _describe_selecting(hashes: Mapping[Stage, list[int]], kind: str) -> list[str]:
    """A sentence that counts the test contents that are validation contents too, and no training contents."""
    validation = set(hashes["val"]) - set(hashes["train"])
    if not (again := sum(map(validation.__contains__, hashes["test"]))):
        return []
    return [
        f"{again:,} of {len(hashes['test']):,} test {kind} are also validation {kind}, which select the epoch, so "
        "test scores may be too good; keep each in one split"
    ]
