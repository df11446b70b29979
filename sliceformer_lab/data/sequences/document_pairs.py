"""Pairs of papers with or without a citation: the retrieval task of the Long Range Arena, from the files of AAN."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import cast

import numpy as np
import torch

from sliceformer_lab.batch import Batch
from sliceformer_lab.config.option_types import Count
from sliceformer_lab.data.cache import by_name, cached_folder
from sliceformer_lab.data.sequences.base import SequenceData, SequenceSplit, SequenceStore
from sliceformer_lab.data.sequences.tokenizer import ByteTokenizer
from sliceformer_lab.data.spec import Content, DataSpec
from sliceformer_lab.data.splits import Stage
from sliceformer_lab.data.strings import Numbered
from sliceformer_lab.data.table_files import tsv_rows
from sliceformer_lab.errors import DataError

FILES: dict[Stage, str] = {
    "train": "new_aan_pairs.train.tsv",
    "val": "new_aan_pairs.eval.tsv",
    "test": "new_aan_pairs.test.tsv",
}
MAX_CHARACTERS = 10_000  # characters read from a document, as published
DOCUMENTS = "documents"
LABELS = {"0.0": 0, "0": 0, "1.0": 1, "1": 1}
PUBLISHED_PAIRS = {"train": 147_086, "val": 18_090, "test": 17_437}  # pairs


@dataclass
class PairSplit(SequenceSplit):
    """Pairs of documents: a sequence of the store holds the positions of its two documents.

    Batches have inputs (2B, N), the B first documents before the B second ones, and targets (B,).
    """

    documents: SequenceStore = field(kw_only=True)

    @property
    def pairs(self) -> np.ndarray:
        """Positions (n, 2) in `documents`."""
        pairs: np.ndarray = self.store.tokens.reshape(-1, 2)[self.rows]
        return pairs

    def lengths(self) -> np.ndarray:
        """Length of the longer document of each pair (n,)."""
        lengths: np.ndarray = np.minimum(self.documents.lengths[self.pairs].max(axis=1), self.max_len)
        return lengths

    def contents(self) -> Iterator[bytes]:
        for pair in self.pairs.tolist():
            yield b"".join(f"{len(part)} ".encode() + part.tobytes() for part in map(self.documents.__getitem__, pair))

    def num_truncated(self) -> int:
        """Number of pairs with a document that is longer than max_len."""
        return int((self.documents.lengths[self.pairs] > self.max_len).any(axis=1).sum())

    def batch(self, rows: list[int]) -> Batch:
        firsts_then_seconds = self.store.tokens.reshape(-1, 2)[self.rows[rows]].T.ravel()
        inputs, padding = self.padded([self.documents[place] for place in firsts_then_seconds])
        return Batch(inputs, self.targets_at(rows), torch.tensor(rows), padding)


@dataclass(kw_only=True, eq=False, repr=False)
class LRARetrieval(SequenceData):
    """Pairs of papers as bytes; the class says whether one cites the other.

    `root` holds the three published files. The cache keeps each document once.
    Source: Tay et al. 2021, section 2.2.3; ACL Anthology Network.
    """

    title = "lra_retrieval"
    content_kind = "text"

    max_len: Count = 4000
    batch_size: Count = 32
    eval_batch_size: Count = 32

    @property
    def spec(self) -> DataSpec:
        """Its name contains the length."""
        return DataSpec(
            name=f"{self.title}_{self.max_len}",
            num_classes=2,
            max_len=self.max_len,
            vocab_size=ByteTokenizer().vocab_size,
            ragged=True,
        )

    @property
    def files(self) -> dict[Stage, Path]:
        return {stage: self.path / name for stage, name in FILES.items()}

    def stages(self) -> tuple[Stage, ...]:
        return tuple(FILES)

    def class_names(self) -> tuple[str, ...]:
        return ("no citation", "citation")

    def source_places(self, stage: Stage) -> Numbered:
        return Numbered(f"{FILES[stage]}, line", first=1)

    def content(self, stored: Content | None) -> str:
        """Both documents, with an empty line between them."""
        documents = SequenceStore.open(self.folder, DOCUMENTS)
        return "\n\n".join(ByteTokenizer().decode(documents[place], self.folder) for place in cast(np.ndarray, stored))

    def prepare(self) -> Path:
        for path in self.files.values():
            if not path.is_file():
                raise DataError(
                    f"{path} is missing and may not be redistributed; get {', '.join(FILES.values())} from "
                    "lra_release/tsv_data of github.com/google-research/long-range-arena, and set data.root to their "
                    "folder"
                )
        return cached_folder(self.path, "pairs", {"files": by_name(list(self.files.values()))}, self._read)

    def _read(self, folder: Path) -> None:
        tokens: list[np.ndarray] = []
        places: dict[bytes, int] = {}  # in `tokens` of each document, by the digest of its text

        def place(text: str) -> int:
            digest = blake2b(text.encode(), digest_size=16).digest()
            if digest not in places:
                places[digest] = len(tokens)
                tokens.extend(ByteTokenizer().encode([text], folder))
            return places[digest]

        for stage, path in self.files.items():
            pairs = [(label, np.array([place(first), place(second)])) for label, first, second in _read_pairs(path)]
            if not pairs:
                raise DataError(f"{path} has no pairs")
            SequenceStore.write(folder, stage, [pair for _, pair in pairs], [label for label, _ in pairs])
        SequenceStore.write(folder, DOCUMENTS, tokens, np.zeros(len(tokens), np.int64))  # only pairs have a target

    def is_official(self) -> tuple[bool, str]:
        counts = self.num_stored()
        if counts == PUBLISHED_PAIRS:
            return True, "as many pairs as published; no checksums are published"
        return False, f"has {counts} pairs, the published set {PUBLISHED_PAIRS}"

    def split(self, store: SequenceStore, rows: np.ndarray) -> PairSplit:
        documents = SequenceStore.open(self.folder, DOCUMENTS)
        return PairSplit(store, self.max_len, self.pad_to_max_len, documents=documents, rows=rows)


def _read_pairs(path: Path) -> Iterator[tuple[int, str, str]]:
    """Label and texts of each row. Raises DataError naming a line with an error."""
    for where, (label, _, _, *texts) in tsv_rows(path, columns=5):
        if label not in LABELS:
            raise DataError(f"{where}: the label is {label!r}, expected {' or '.join(LABELS)}")
        if not all(text.strip() for text in texts):
            raise DataError(f"{where}: one of the texts is empty; delete the row")
        yield LABELS[label], texts[0][:MAX_CHARACTERS], texts[1][:MAX_CHARACTERS]
