"""Your own texts and labels in a table: CSV, TSV, JSONL or Parquet."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from sliceformer_lab.config.option_types import Count, Share
from sliceformer_lab.data.input_files import read_inputs
from sliceformer_lab.data.own_data import Column, OwnTables
from sliceformer_lab.data.own_targets import Labelled, TableTargets
from sliceformer_lab.data.sequences.base import SequenceStore
from sliceformer_lab.data.sequences.text import Text, TextData, Texts
from sliceformer_lab.data.sequences.tokenizer import (
    ByteTokenizer,
    PieceTokenizer,
    PretrainedTokenizer,
    Tokenizer,
    TokenKind,
    VocabSize,
    pieces_for,
)
from sliceformer_lab.data.spec import Choice, DataSpec, NewInput
from sliceformer_lab.data.splits import Stage
from sliceformer_lab.data.table_files import check_classes, check_table, field_of, split_of, table_rows
from sliceformer_lab.errors import DataError

SHORT_TEXT_CHARACTERS = 24  # characters of a text on average, below which a step is quick and has little to learn from
MORE_STEPS = 4  # times optim.target_steps, that short texts train


@dataclass(kw_only=True, eq=False, repr=False)
class TextCSV(TextData, TableTargets, OwnTables):
    """Texts of a table with one class each, named by words or numbers, or with several numbers or labels.

    A column, separate files, or fractions of every class define the splits. Raises ValueError if two options define
    the tokens.
    """

    title = "text_csv"
    note = "your own texts; sha256 is of them, their labels and splits of their own"
    batch_sizes: ClassVar[tuple[int, int]] = (16, 32)

    text_column: Column = "text"
    header: bool = True
    quotes: bool = True
    batch_size: Count | None = None
    bucket_share: Share = 0.05
    tokens: TokenKind = "bpe"
    vocab_size: VocabSize | None = None
    tokenizer_folder: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tokenizer_folder and (self.tokens == "bytes" or self.vocab_size):
            raise ValueError("tokenizer_folder decides the tokens; leave tokens=bpe and vocab_size=null")

    @property
    def tokenizer(self) -> Tokenizer:
        if self.tokenizer_folder:
            return PretrainedTokenizer(Path(self.tokenizer_folder).expanduser())
        if self.tokens == "bytes":
            return ByteTokenizer()
        return PieceTokenizer(self.vocab_size or pieces_for(sum(self._training_lengths)))

    @cached_property
    def _training_lengths(self) -> list[int]:
        """The characters of each text that trains."""
        parts = self.with_test(self.read())
        return list(map(len, self.texts_that_train(parts, self.answers_of(parts)[1]["train"])))

    @property
    def step_factor(self) -> int:
        return MORE_STEPS if sum(self._training_lengths) < SHORT_TEXT_CHARACTERS * len(self._training_lengths) else 1

    def choices(self) -> list[Choice]:
        if self.vocab_size is not None or self.tokens == "bytes" or self.tokenizer_folder:
            return super().choices()
        pieces, texts = self.tokenizer.vocab_size, f"{sum(self._training_lengths):,} characters in the training texts"
        return [*super().choices(), Choice("data.vocab_size", pieces, texts)]

    def read_inputs(self, path: Path, column: str | None) -> Iterator[NewInput]:
        """The texts of a table of the same form, or a text a line. A `column` with a name is that of a header."""
        chosen = column or str(self.text_column)
        header = self.header or not chosen.isdecimal()
        return read_inputs(path, "text", chosen, header=header, quotes=self.quotes)

    @property
    def test_share(self) -> float:
        return 0.0 if self.test_file else self.test_fraction

    @property
    def spec(self) -> DataSpec:
        """Reads the classes or targets from the table. Raises DataError."""
        spec = replace(super().spec, name=self.own_name, num_classes=len(self.class_names()))
        if self.has_classes:
            return spec
        return replace(spec, targets=self.targets_are, num_targets=len(self.target_names()))

    def found_labels(self) -> tuple[str, ...]:
        return tuple(self.facts()["labels"])

    def answers(self, examples: Sequence[Labelled]) -> tuple[dict[str, list[str]], np.ndarray]:
        return self.encode_targets(examples, "texts")

    def target_values(self) -> np.ndarray:
        return np.concatenate([SequenceStore.open(self.folder, stage).targets for stage in self.stages()])

    def source(self) -> dict[str, Any]:
        for path in self.files.values():
            check_table(path, "texts and labels")
        columns = {"text": self.text_column, "split": self.split_column, **self.target_columns}
        columns |= {"header": self.header, "quotes": self.quotes}
        return self.known_by(columns)

    def read(self) -> Texts:
        parts: dict[Stage, list[Text]] = {}
        for stage, path in self.files.items():
            for place, row in table_rows(path, header=self.header, quotes=self.quotes):
                part = split_of(place, row, str(self.split_column)) if self.split_column else stage
                text = Text(self._text(place, row), self.target_of(place, row, self._advice), place)
                parts.setdefault(part, []).append(text)
            if stage not in parts:
                raise DataError(f"{path} has no {'rows' if self.split_column is None else 'training rows'}; add some")
        if self.has_classes:
            check_classes(self.file, self.label_column, [str(text.label) for text in parts["train"]])
        return parts

    @property
    def _advice(self) -> str:
        return "; if the first line of this CSV or TSV is a text, set data.header=false" if self.header else ""

    def _text(self, place: str, row: Mapping[str, Any]) -> str:
        text = field_of(place, row, str(self.text_column), "text_column", self._advice)
        if not isinstance(text, str):
            advice = "choose another data.text_column" if text is not None else "add it or delete the row"
            raise DataError(f"{place}: {self.text_column} is {text!r}, not a text; {advice}")
        return text
