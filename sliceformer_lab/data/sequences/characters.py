"""A text of your own as windows of characters, each to be predicted from those before it."""

import hashlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sliceformer_lab.batch import Batch
from sliceformer_lab.config.option_types import Count
from sliceformer_lab.data.cached_data import StoredSplit
from sliceformer_lab.data.loader import Split
from sliceformer_lab.data.own_data import OwnData
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.data.splits import Stage
from sliceformer_lab.data.table_files import decode_text
from sliceformer_lab.errors import DataError
from sliceformer_lab.runs.plain_text import counted

log = logging.getLogger(__name__)

UNKNOWN = 0  # the id of every character that the training text does not have


@dataclass
class TextWindows(StoredSplit):
    """Windows of `size` characters that follow each other in a piece of a text, with the next characters as targets.

    With `moving`, a window starts up to `size` - 1 characters later, anew in every pass.
    """

    ids: np.ndarray  # (n,) of the whole piece
    first: int  # place of the piece in the text, in characters
    size: int
    moving: bool = False

    def place(self, row: int) -> str:
        return f"character {self.first + self.rows[row] * self.size + 1:,}"

    def contents(self) -> Iterator[bytes]:
        yield self.ids.tobytes()

    def batch(self, rows: list[int]) -> Batch:
        starts = torch.from_numpy(self.rows[rows] * self.size)
        if self.moving:
            starts = (starts + torch.randint(self.size, starts.shape)).clamp(max=len(self.ids) - self.size - 1)
        return self._batch(starts, rows)

    @property
    def seen(self) -> np.ndarray:
        """The characters (m,) of the piece that its windows can hold."""
        end: int = (self.rows.max() + 1 + self.moving) * self.size + 1
        return self.ids[:end]

    def targets_at(self, rows: list[int]) -> Tensor:
        """The targets (n, size), of windows that do not move."""
        return self._batch(torch.from_numpy(self.rows[rows] * self.size), rows).target

    def _batch(self, starts: Tensor, rows: list[int]) -> Batch:
        windows = torch.from_numpy(self.ids[starts[:, None].numpy() + np.arange(self.size + 1)])
        return Batch(windows[:, :-1].contiguous(), windows[:, 1:].contiguous(), torch.tensor(rows))


@dataclass(kw_only=True, eq=False, repr=False)
class CharacterText(OwnData):
    """The characters of a text file. The first part trains, the next validates, the last tests.

    The characters of the training part are the vocabulary; all others are one unknown character.
    """

    title = "text_lm"
    note = "your own text; sha256 is of its characters"

    file: str
    max_len: Count = 128

    @property
    def origin(self) -> Path:
        return Path(self.file).expanduser()

    @property
    def spec(self) -> DataSpec:
        """Reads the text for its vocabulary. Raises DataError."""
        size = len(self.vocabulary) + 1
        return DataSpec(
            name=self.own_name, num_classes=size, vocab_size=size, max_len=self.max_len, targets="next tokens"
        )

    @cached_property
    def pieces(self) -> Mapping[Stage, tuple[int, np.ndarray]]:
        """Start and code points (n,) of the piece of each split. Raises DataError."""
        try:
            content = self.origin.read_bytes()
        except OSError as error:
            raise DataError(f"{self.origin} cannot be read ({error.strerror}); set data.file to a text file") from error
        text = decode_text(content, self.origin).replace("\r\n", "\n")
        points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        test, val = (round(len(points) * share) for share in (self.test_fraction, self.val_fraction))
        bounds = {"train": (0, len(points) - test - val), "val": (len(points) - test - val, len(points) - test)}
        bounds["test"] = (len(points) - test, len(points))
        return {stage: (start, points[start:end]) for stage, (start, end) in bounds.items()}  # type: ignore[misc]

    @cached_property
    def vocabulary(self) -> np.ndarray:
        """The code points (V,) of the training text, sorted; the id of a character is its place from 1."""
        return np.unique(self.pieces["train"][1])

    def encoded(self, points: np.ndarray) -> np.ndarray:
        """Code points (n,) -> ids (n,) int64."""
        place = np.searchsorted(self.vocabulary, points).clip(max=len(self.vocabulary) - 1)
        return np.where(self.vocabulary[place] == points, place + 1, UNKNOWN).astype(np.int64)

    def make_splits(self) -> dict[Stage, Split]:
        splits: dict[Stage, Split] = {}
        for stage, (start, points) in self.pieces.items():
            count = (len(points) - 1) // self.max_len
            wanted = stage == "train" or {"val": self.val_fraction, "test": self.test_fraction}[stage] > 0
            if wanted and count < 1:
                raise DataError(
                    f"{self.origin}: the {stage} part has {len(points)} characters, but one example needs "
                    f"data.max_len + 1 = {self.max_len + 1}; choose a longer text or a smaller data.max_len"
                )
            ids = self.encoded(points)
            splits[stage] = TextWindows(ids, start, self.max_len, stage == "train", rows=np.arange(max(count, 0)))
            if unknown := int((ids == UNKNOWN).sum()):
                strange = counted(unknown, "character")
                log.info(f"{self.title}: of the {stage} part, {strange} never occurred in the training part")
        return splits

    def prepare_data(self) -> None:
        """Reads the text. Raises DataError."""
        _ = self.vocabulary

    def content_sha256(self) -> str:
        found = hashlib.sha256()
        for _, points in self.pieces.values():
            found.update(points.tobytes())
        return found.hexdigest()

    def class_names(self) -> tuple[str, ...]:
        return ("unknown", *map(chr, self.vocabulary))

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"vocabulary": "".join(map(chr, self.vocabulary))}

    def check_encoding(self, state_dict: Mapping[str, Any]) -> None:
        if state_dict.get("vocabulary") != self.state_dict()["vocabulary"]:
            raise DataError(
                f"{self.origin} has other characters than the text that the checkpoint was trained on; "
                "use the same file and fractions"
            )
