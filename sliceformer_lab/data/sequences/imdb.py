"""The 50,000 labelled film reviews of Maas et al. (2011), as word pieces and as bytes."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from sliceformer_lab.config.option_types import Count
from sliceformer_lab.data.cache import digest_of_stamps
from sliceformer_lab.data.download import OfficialFile, fetch_unpacked
from sliceformer_lab.data.sequences.base import SequenceSplit, SequenceStore
from sliceformer_lab.data.sequences.text import Text, TextData, Texts, digest_texts
from sliceformer_lab.data.sequences.tokenizer import ByteTokenizer, PieceTokenizer, Tokenizer, VocabSize
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.data.splits import Stage
from sliceformer_lab.data.table_files import decode_text
from sliceformer_lab.errors import DataError

LABELS = ("neg", "pos")


@dataclass(kw_only=True, eq=False, repr=False)
class Reviews(TextData):
    """The reviews in the files of their authors: `root` holds aclImdb or its archive, or is aclImdb.

    `partition=official` trains on 25,000 and tests on 25,000; `published` merges them and tests on a fifth of every
    class, picked by `split_seed`, as in Sliceformer's code (40,000 and 10,000).
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
    # of a copy with the same sizes as Hugging Face's: 33,132,823 bytes to train on, 32,350,685 to test on
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
        return {"files": lambda: digest_of_stamps(self._files()), "partition": self.partition}

    def read(self) -> Texts:
        parts: dict[Stage, list[Text]] = {"train": [], "test": []}
        for path in self._files():
            stage: Stage = "train" if path.parent.parent.name == "train" else "test"
            parts[stage].append(Text(decode_text(path.read_bytes(), path), path.parent.name, str(path)))
        every = parts["train"] + parts["test"]
        if self.verify and digest_texts(every) != self.published_sha256:
            raise DataError(
                f"{self.reviews} does not hold the published reviews ({len(every):,} texts, expected 50,000 with "
                "another sha256); delete it to download them again, or set data.verify=false to use this copy, which "
                "results then call unofficial"
            )
        return parts if self.partition == "official" else {"train": every}

    def short_place(self, place: str) -> str:
        """The place of a review: "train/neg/0_3.txt"."""
        return Path(*Path(place).parts[-3:]).as_posix()

    def is_official(self) -> tuple[bool, str]:
        official = self.facts()["sha256"] == self.published_sha256
        verb = "agrees" if official else "disagrees"
        return official, f"sha256 of all texts and labels {verb} with the published set"

    def _files(self) -> list[Path]:
        """All reviews. Raises DataError naming a folder without any."""
        files: list[Path] = []
        for folder in (self.reviews / part / label for part in ("train", "test") for label in LABELS):
            found = sorted(folder.glob("*.txt"))
            if not found:
                raise DataError(f"{folder} holds no reviews (*.txt); delete {self.reviews} to download the set again")
            files += found
        return files


@dataclass(kw_only=True, eq=False, repr=False)
class IMDB(Reviews):
    """Reviews as word pieces, which are learned from the training reviews."""

    title = "imdb"

    batch_size: Count = 128
    vocab_size: VocabSize = 16_000

    @property
    def tokenizer(self) -> Tokenizer:
        return PieceTokenizer(self.vocab_size)


@dataclass(kw_only=True, eq=False, repr=False)
class LRAText(Reviews):
    """Reviews as bytes, the Text task of the Long Range Arena.

    Papers use different lengths `max_len`: 1,000 bytes in LRA's code, 1,024 in SAMSA, 4,000 in MEGA, which appends an
    end token (`eos`). Source: Tay et al. 2021, section 2.2.2.
    """

    title = "lra_text"

    batch_size: Count = 32
    max_len: Count = 1000
    eos: bool = False

    @property
    def tokenizer(self) -> Tokenizer:
        return ByteTokenizer()

    @property
    def spec(self) -> DataSpec:
        """Its name contains the length."""
        known = super().spec
        return replace(
            known,
            name=f"{self.title}_{self.max_len}",
            max_len=self.max_len + self.eos,
            vocab_size=known.vocab_size + self.eos,
        )

    @property
    def rule_of_ids(self) -> str:
        if not self.eos:
            return super().rule_of_ids
        return f"{super().rule_of_ids}, the first {self.max_len} of them, and {self.tokenizer.vocab_size} at the end"

    def split(self, store: SequenceStore, rows: np.ndarray) -> SequenceSplit:
        end = self.tokenizer.vocab_size if self.eos else None
        return SequenceSplit(store, self.max_len, self.pad_to_max_len, end=end, rows=rows)
