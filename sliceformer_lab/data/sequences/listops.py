"""ListOps of the Long Range Arena: generated as published, or read from the published files."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import cast

import numpy as np

from sliceformer_lab.config.option_types import Count, Natural
from sliceformer_lab.data.cache import by_name, cached_folder
from sliceformer_lab.data.parallel import paced
from sliceformer_lab.data.sequences.base import GeneratedData, SequenceStore
from sliceformer_lab.data.sequences.expressions import VERSION, VOCABULARY, distinct, ids_of, source_of, value_of
from sliceformer_lab.data.spec import Content, DataSpec
from sliceformer_lab.data.splits import Stage
from sliceformer_lab.data.strings import Numbered
from sliceformer_lab.data.table_files import tsv_rows
from sliceformer_lab.errors import DataError

Examples = Iterable[tuple[bytes, int]]
PUBLISHED_EXPRESSIONS = {"train": 96_000, "val": 2_000, "test": 2_000}


@dataclass(kw_only=True, eq=False, repr=False)
class ListOps(GeneratedData):
    """Nested lists of digits with four operators; the class is the digit that an expression evaluates to.

    Generated expressions differ and have more than `min_len` and fewer than `max_len` symbols. A seed gives the test
    examples first, then validation and training, so that they stay the same with a larger training set. Raises
    ValueError if no length is possible.
    """

    title = "lra_listops"
    content_kind = "text"
    takes_new = True

    min_len: Natural = 500
    max_len: Count = 2000
    num_train: Count = 96_000
    num_val: Count = 2_000
    num_test: Count = 2_000
    batch_size: Count = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.source == "generated" and self.max_len - self.min_len < 2:
            raise ValueError(
                f"min_len={self.min_len} and max_len={self.max_len} leave no length between them; "
                "expressions are longer than min_len and shorter than max_len, so increase max_len"
            )

    @property
    def spec(self) -> DataSpec:
        """Its name contains the lengths."""
        shortest = f"{self.min_len}_" if self.source == "generated" else ""
        return DataSpec(
            name=f"{self.title}_{shortest}{self.max_len}",
            num_classes=10,
            max_len=self.max_len,
            vocab_size=len(VOCABULARY),
            ragged=True,
        )

    @property
    def official_files(self) -> dict[Stage, Path]:
        return {stage: self.path / f"basic_{stage}.tsv" for stage in self.stages()}

    def source_places(self, stage: Stage) -> Numbered:
        if self.source == "generated":
            return Numbered(f"{stage} expression")
        return Numbered(f"{self.official_files[stage].name}, line", first=2)

    def content(self, stored: Content | None) -> str:
        """The expression in the notation of the published files, without parentheses."""
        return source_of(cast(np.ndarray, stored))

    def encode_one(self, content: Content) -> np.ndarray:
        """The ids (n,) of an expression, in the notation of the published files."""
        try:
            ids = ids_of(str(content))
            value_of(ids)
        except ValueError as error:
            raise DataError(f"the expression {error}") from None
        return np.frombuffer(ids, np.uint8)

    def prepare(self) -> Path:
        if self.source == "generated":
            key = {name: getattr(self, name) for name in ("generator_seed", "min_len", "max_len")} | self._counts
            return cached_folder(self.path, "expressions", {"generator": VERSION, **key}, self._generate)
        missing = [path for path in self.official_files.values() if not path.is_file()]
        if missing:
            raise DataError(
                f"{missing[0]} is missing; put the three files basic_*.tsv of the Long Range Arena's listops-1000 "
                "there, or set data.source=generated"
            )
        return cached_folder(self.path, "official", {"files": by_name(list(self.official_files.values()))}, self._read)

    @property
    def _counts(self) -> dict[str, int]:
        return {f"num_{stage}": getattr(self, f"num_{stage}") for stage in self.stages()}

    def _generate(self, folder: Path) -> None:
        total = sum(self._counts.values())
        expressions = distinct(self.generator_seed, self.min_len, self.max_len, self.processes)
        examples = list(paced(islice(expressions, total), "expressions", total))
        if len(examples) < total:
            raise DataError(
                f"{self.title}: only {len(examples):,} different expressions of more than {self.min_len} and fewer "
                f"than {self.max_len} symbols were found, expected {total:,}; increase data.max_len"
            )
        rest = iter(examples)
        for stage in reversed(self.stages()):
            _write_examples(folder, stage, islice(rest, self._counts[f"num_{stage}"]))

    def _read(self, folder: Path) -> None:
        for stage, path in self.official_files.items():
            _write_examples(folder, stage, _read_official(path))

    def is_official(self) -> tuple[bool, str]:
        if self.source == "generated":
            return False, "drawn by our own generator from the published distribution"
        counts = self.num_stored()
        if counts == PUBLISHED_EXPRESSIONS:
            return True, "as many expressions as published, all targets correct; no checksums are published"
        return False, f"has {counts} expressions, the published set {PUBLISHED_EXPRESSIONS}"


def _write_examples(folder: Path, stage: Stage, examples: Examples) -> None:
    sequences, targets = zip(*examples, strict=True)
    SequenceStore.write(folder, stage, (np.frombuffer(ids, np.uint8) for ids in sequences), np.array(targets, np.int64))


def _read_official(path: Path) -> Examples:
    """Ids and targets of a published file. Raises DataError naming a line with an error."""
    rows = tsv_rows(path, columns=2)
    _, header = next(rows, (None, None))
    if header != ["Source", "Target"]:
        raise DataError(f"{path}, line 1: given {header}, expected the columns Source and Target")
    empty = True
    for where, (source, target) in rows:
        try:
            ids = ids_of(source)
            value = value_of(ids)
        except ValueError as error:
            raise DataError(f"{where}: the expression {error}") from None
        if target != str(value):
            raise DataError(f"{where}: the target is {target!r}, but the value of the expression is {value}")
        yield ids, value
        empty = False
    if empty:
        raise DataError(f"{path} has no expressions")
