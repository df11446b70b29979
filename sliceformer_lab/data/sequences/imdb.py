"""The 50,000 labelled film reviews of Maas et al. (2011), as word pieces and as bytes."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from sliceformer_lab.data.base import Positive, Stage
from sliceformer_lab.data.download import OfficialFile, fetch_unpacked
from sliceformer_lab.data.sequences.base import SequenceSplit, SequenceStore
from sliceformer_lab.data.sequences.text import Text, TextData, Texts, digest, listing
from sliceformer_lab.data.sequences.tokenizer import ByteTokenizer, PieceTokenizer, Tokenizer, VocabSize
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.data.table_files import decoded
from sliceformer_lab.errors import DataError

LABELS = ("neg", "pos")


@dataclass(kw_only=True, eq=False, repr=False)
class Reviews(TextData):
    """The reviews in the files that their authors publish: `root` holds aclImdb or its archive, or is aclImdb.

    `partition` official: 25,000 to train on and 25,000 to test on; published: all are merged and a fifth of every
    class, picked by `split_seed`, is the test part, as in Sliceformer's code (40,000 and 10,000).
    """

    download: bool = True
    verify: bool = True
    partition: Literal["official", "published"] = "official"

    archive: ClassVar[OfficialFile] = OfficialFile(
        "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
        "7c2ac02c03563afcf9b574c7e56c153a",
        84_125_825,
    )
    inner: ClassVar[str] = "aclImdb"
    # of a copy with the sizes of Hugging Face's: 33,132,823 bytes to train on, 32,350,685 to test on
    published_sha256: ClassVar[str] = "ba3414e404b66584d44c5b9863ae135a13683f87882a751a316284aac8ebbb71"

    @property
    def reviews(self) -> Path:
        """The folder aclImdb."""
        return self.path if (self.path / "train" / LABELS[0]).is_dir() else self.path / self.inner

    @property
    def test_share(self) -> float:
        return 0.2 if self.partition == "published" else 0.0

    def source(self) -> dict[str, Any]:
        if not self.reviews.is_dir():
            fetch_unpacked(self.archive, self.path, self.inner, download=self.download, check=self.verify)
        return {"files": listing(self._files()), "partition": self.partition}

    def read(self) -> Texts:
        parts: dict[Stage, list[Text]] = {"train": [], "test": []}
        for path in self._files():
            stage: Stage = "train" if path.parent.parent.name == "train" else "test"
            parts[stage].append(Text(decoded(path.read_bytes(), path), path.parent.name, str(path)))
        every = parts["train"] + parts["test"]
        if self.verify and digest(every) != self.published_sha256:
            raise DataError(
                f"{self.reviews} does not hold the published reviews ({len(every):,} texts, expected 50,000 of another "
                "sha256); delete it to fetch them again, or say data.verify=false to use this copy, which results then "
                "call unofficial"
            )
        return parts if self.partition == "official" else {"train": every}

    def is_official(self) -> tuple[bool, str]:
        official = self.facts()["sha256"] == self.published_sha256
        what = "are" if official else "are not"
        return official, f"all texts and labels {what} those of the published set, by sha256"

    def _files(self) -> list[Path]:
        """All reviews. Raises DataError naming a folder that has none."""
        files: list[Path] = []
        for folder in (self.reviews / part / label for part in ("train", "test") for label in LABELS):
            found = sorted(folder.glob("*.txt"))
            if not found:
                raise DataError(f"{folder} holds no reviews (*.txt); delete {self.reviews} to fetch the set again")
            files += found
        return files


@dataclass(kw_only=True, eq=False, repr=False)
class IMDB(Reviews):
    """Reviews in word pieces learned from the training reviews."""

    title = "imdb"

    batch_size: Positive = 128
    vocab_size: VocabSize = 16_000

    @property
    def tokenizer(self) -> Tokenizer:
        return PieceTokenizer(self.vocab_size)


@dataclass(kw_only=True, eq=False, repr=False)
class LRAText(Reviews):
    """Reviews in bytes, the Text task of Long-Range Arena (Tay et al. 2021, section 2.2.2).

    `max_len` makes it another task: 1,000 bytes in LRA's code, 1,024 in SAMSA, 4,000 in MEGA, which puts an end token
    behind (`eos`).
    """

    title = "lra_text"

    batch_size: Positive = 32
    max_len: Positive = 1000
    eos: bool = False

    @property
    def tokenizer(self) -> Tokenizer:
        return ByteTokenizer()

    @property
    def spec(self) -> DataSpec:
        """Its name carries the length."""
        known = super().spec
        return replace(
            known,
            name=f"{self.title}_{self.max_len}",
            max_len=self.max_len + self.eos,
            vocab_size=known.vocab_size + self.eos,
        )

    def split(self, store: SequenceStore, rows: np.ndarray) -> SequenceSplit:
        end = self.tokenizer.vocab_size if self.eos else None
        return SequenceSplit(store, rows, self.max_len, self.pad_to_max_len, end=end)
