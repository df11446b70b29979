"""Your own texts and labels in a table: CSV, TSV, JSONL or Parquet."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sliceformer_lab.config.option_types import Fraction
from sliceformer_lab.data.cache import stamps
from sliceformer_lab.data.sequences.text import Text, TextData, Texts
from sliceformer_lab.data.sequences.tokenizer import ByteTokenizer, PieceTokenizer, Tokenizer, TokenKind, VocabSize
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.data.splits import Stage
from sliceformer_lab.data.table_files import check_table, field_of, split_of, table_rows
from sliceformer_lab.errors import DataError


@dataclass(kw_only=True, eq=False, repr=False)
class TextCSV(TextData):
    """Texts of a table with one class each, named by words or numbers.

    A column, separate files, or fractions of every class define the splits. Raises ValueError if both a column and
    files define them.
    """

    title = "text_csv"

    file: str
    text_column: str = "text"
    label_column: str = "label"
    split_column: str | None = None
    val_file: str | None = None
    test_file: str | None = None
    test_fraction: Fraction = 0.1
    tokens: TokenKind = "bpe"
    vocab_size: VocabSize = 16_000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.split_column is not None and (self.val_file or self.test_file):
            raise ValueError("split_column and val_file or test_file both define the splits; set one to null")

    @property
    def tokenizer(self) -> Tokenizer:
        return ByteTokenizer() if self.tokens == "bytes" else PieceTokenizer(self.vocab_size)

    @property
    def test_share(self) -> float:
        return 0.0 if self.test_file else self.test_fraction

    @property
    def spec(self) -> DataSpec:
        """Reads the classes from the table. Raises DataError."""
        return self._spec(num_classes=len(self.facts()["classes"]))

    @property
    def files(self) -> dict[Stage, Path]:
        """The table of each split."""
        named: dict[Stage, str | None] = {"train": self.file, "val": self.val_file, "test": self.test_file}
        return {stage: Path(name).expanduser() for stage, name in named.items() if name}

    def source(self) -> dict[str, Any]:
        for path in self.files.values():
            check_table(path, "texts and labels")
        columns = {"text": self.text_column, "label": self.label_column, "split": self.split_column}
        return {"files": {stage: stamps([path]) for stage, path in self.files.items()}, "columns": columns}

    def read(self) -> Texts:
        parts: dict[Stage, list[Text]] = {}
        for stage, path in self.files.items():
            for place, row in table_rows(path):
                part = split_of(place, row, self.split_column) if self.split_column else stage
                parts.setdefault(part, []).append(Text(self._text(place, row), self._label(place, row), place))
            if stage not in parts:
                raise DataError(f"{path} has no {'rows' if self.split_column is None else 'training rows'}; add some")
        return parts

    def is_official(self) -> tuple[bool, str]:
        return False, "your own texts; sha256 is of their tokens and labels"

    def _text(self, place: str, row: Mapping[str, Any]) -> str:
        text = field_of(place, row, self.text_column, "text_column")
        if not isinstance(text, str):
            raise DataError(f"{place}: {self.text_column} is {text!r}, not a text; choose another data.text_column")
        return text

    def _label(self, place: str, row: Mapping[str, Any]) -> str:
        label = field_of(place, row, self.label_column, "label_column")
        if not isinstance(label, str | int) or label == "":
            raise DataError(f"{place}: {self.label_column} is {label!r}, expected a word or a whole number")
        return str(label)
