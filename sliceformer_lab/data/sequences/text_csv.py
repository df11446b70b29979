"""Your own texts and labels in a table: CSV, TSV, JSONL or Parquet."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from sliceformer_lab.config.option_types import Count, Share
from sliceformer_lab.data.cache import by_name
from sliceformer_lab.data.own_data import OwnData
from sliceformer_lab.data.sequences.text import Text, TextData, Texts
from sliceformer_lab.data.sequences.tokenizer import (
    ByteTokenizer,
    PieceTokenizer,
    Tokenizer,
    TokenKind,
    VocabSize,
    pieces_for,
)
from sliceformer_lab.data.spec import Choice, DataSpec
from sliceformer_lab.data.splits import Stage
from sliceformer_lab.data.table_files import check_classes, check_table, field_of, split_of, table_rows
from sliceformer_lab.errors import DataError

SHORT_TEXT_CHARACTERS = 24  # characters of a text on average, below which a step is quick and has little to learn from
MORE_STEPS = 4  # times optim.target_steps, that short texts train
Column = str | Count  # its name, or its number from 1 in a table without a header


@dataclass(kw_only=True, eq=False, repr=False)
class TextCSV(TextData, OwnData):
    """Texts of a table with one class each, named by words or numbers.

    A column, separate files, or fractions of every class define the splits. Raises ValueError if both a column and
    files define them.
    """

    title = "text_csv"
    note = "your own texts; sha256 is of their tokens and labels"
    batch_sizes: ClassVar[tuple[int, int]] = (16, 32)

    file: str
    text_column: Column = "text"
    label_column: Column = "label"
    split_column: Column | None = None
    header: bool = True
    quotes: bool = True
    val_file: str | None = None
    test_file: str | None = None
    batch_size: Count | None = None
    bucket_share: Share = 0.05
    tokens: TokenKind = "bpe"
    vocab_size: VocabSize | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.split_column is not None and (self.val_file or self.test_file):
            raise ValueError("split_column and val_file or test_file both define the splits; set one to null")

    @property
    def tokenizer(self) -> Tokenizer:
        if self.tokens == "bytes":
            return ByteTokenizer()
        return PieceTokenizer(self.vocab_size or pieces_for(sum(self._training_lengths)))

    @cached_property
    def _training_lengths(self) -> list[int]:
        """The characters of each training text."""
        return [len(text.content) for text in self.with_test(self.read())["train"]]

    @property
    def step_factor(self) -> int:
        return MORE_STEPS if sum(self._training_lengths) < SHORT_TEXT_CHARACTERS * len(self._training_lengths) else 1

    def choices(self) -> list[Choice]:
        if self.vocab_size is not None or self.tokens == "bytes":
            return super().choices()
        pieces, texts = self.tokenizer.vocab_size, f"{sum(self._training_lengths):,} characters in the training texts"
        return [*super().choices(), Choice("data.vocab_size", pieces, texts)]

    @property
    def content_column(self) -> str:
        return str(self.text_column)

    @property
    def test_share(self) -> float:
        return 0.0 if self.test_file else self.test_fraction

    @property
    def spec(self) -> DataSpec:
        """Reads the classes from the table. Raises DataError."""
        return replace(self._spec(num_classes=len(self.facts()["classes"])), name=self.own_name)

    @property
    def origin(self) -> Path:
        return self.files["train"]

    @property
    def files(self) -> dict[Stage, Path]:
        """The table of each split."""
        named: dict[Stage, str | None] = {"train": self.file, "val": self.val_file, "test": self.test_file}
        return {stage: Path(name).expanduser() for stage, name in named.items() if name}

    def source(self) -> dict[str, Any]:
        for path in self.files.values():
            check_table(path, "texts and labels")
        columns = {"text": self.text_column, "label": self.label_column, "split": self.split_column}
        columns |= {"header": self.header, "quotes": self.quotes}
        return {"files": {stage: by_name([path]) for stage, path in self.files.items()}, "columns": columns}

    def read(self) -> Texts:
        parts: dict[Stage, list[Text]] = {}
        for stage, path in self.files.items():
            for place, row in table_rows(path, header=self.header, quotes=self.quotes):
                part = split_of(place, row, str(self.split_column)) if self.split_column else stage
                parts.setdefault(part, []).append(Text(self._text(place, row), self._label(place, row), place))
            if stage not in parts:
                raise DataError(f"{path} has no {'rows' if self.split_column is None else 'training rows'}; add some")
        check_classes(self.file, self.label_column, [text.label for text in parts["train"]])
        return parts

    def _field(self, place: str, row: Mapping[str, Any], column: Column, option: str) -> Any:
        advice = "; if the first line of this CSV or TSV is a text, set data.header=false" if self.header else ""
        return field_of(place, row, str(column), option, advice)

    def _text(self, place: str, row: Mapping[str, Any]) -> str:
        text = self._field(place, row, self.text_column, "text_column")
        if not isinstance(text, str):
            raise DataError(f"{place}: {self.text_column} is {text!r}, not a text; choose another data.text_column")
        return text

    def _label(self, place: str, row: Mapping[str, Any]) -> str:
        label = self._field(place, row, self.label_column, "label_column")
        if not isinstance(label, str | int) or label == "":
            raise DataError(f"{place}: {self.label_column} is {label!r}, expected a word or a whole number")
        return str(label)
