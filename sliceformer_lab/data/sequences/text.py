"""Labelled texts, kept as tokens together with the tokenizer that made them."""

import hashlib
import json
import logging
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from sliceformer_lab.config.option_types import Count
from sliceformer_lab.data.cache import IDENTITY, cached_folder
from sliceformer_lab.data.class_names import number_classes
from sliceformer_lab.data.own_targets import Labelled, Target
from sliceformer_lab.data.parallel import paced
from sliceformer_lab.data.sequences.base import SequenceData, SequenceSplit, SequenceStore
from sliceformer_lab.data.sequences.tokenizer import TOKENIZER_FILE, Tokenizer
from sliceformer_lab.data.spec import Content, DataSpec
from sliceformer_lab.data.splits import STAGES, Stage, hold_out
from sliceformer_lab.data.strings import Strings
from sliceformer_lab.errors import DataError
from sliceformer_lab.runs.files import digest_of, write_text

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Text:
    """A text, the name of its class, its labels or its numbers, and its file or row for messages."""

    content: str
    label: Target
    place: str


Texts = Mapping[Stage, list[Text]]


@dataclass(kw_only=True, eq=False, repr=False)
class TextData(SequenceData):
    """Texts with one class each, or numbers or labels. A subclass reads the texts and chooses the tokenizer.

    A tokenizer that learns does so from the texts that train, so texts have a cache for each split. A trained model
    keeps its tokenizer, whatever texts it is scored on.
    """

    content_kind = "text"
    takes_new = True
    facts_file = "texts.json"  # classes or labels by their numbers, sha256 of texts and targets, sizes of given splits

    max_len: Count = 512

    @property
    @abstractmethod
    def tokenizer(self) -> Tokenizer:
        """Turns texts into tokens."""

    @property
    def rule_of_ids(self) -> str:
        """How a program outside this package makes the ids of a text."""
        if not self.tokenizer.adds_end(self._tokenizer_folder):
            return self.tokenizer.rule
        return f"{self.tokenizer.rule}; of more than {self.max_len}, the first {self.max_len - 1} and the last"

    def split(self, store: SequenceStore, rows: np.ndarray) -> SequenceSplit:
        keeps_last = self.tokenizer.adds_end(self._tokenizer_folder)
        return SequenceSplit(store, self.max_len, self.pad_to_max_len, keeps_last=keeps_last, rows=rows)

    @property
    def _tokenizer_folder(self) -> Path:
        """The folder in which `Tokenizer.train` has written: that of the trained model, or the cache."""
        return self.plan.run_folder or self.folder

    @abstractmethod
    def source(self) -> dict[str, Any]:
        """Identifies the files without reading them. Raises DataError if a file is missing."""

    @abstractmethod
    def read(self) -> Texts:
        """The splits of the texts, at least "train". Raises DataError."""

    @property
    def spec(self) -> DataSpec:
        return DataSpec(
            name=self.title,
            num_classes=2,
            max_len=self.max_len,
            vocab_size=self.tokenizer.vocab_size,
            ragged=True,
        )

    def stages(self) -> tuple[Stage, ...]:
        return tuple(stage for stage in STAGES if SequenceStore.is_in(self.folder, stage))

    def source_places(self, stage: Stage) -> Strings:
        return Strings.open(self.folder, f"{IDENTITY}{stage}")

    def content(self, stored: Content | None) -> str:
        """The whole text."""
        return self.tokenizer.decode(cast(np.ndarray, stored), self.folder)

    def encode_one(self, content: Content) -> np.ndarray:
        """The tokens (n,) of a text."""
        if not isinstance(content, str):
            raise DataError(f"it is {type(content).__name__}, not a text")
        if not content.strip():
            raise DataError("the text is empty")
        if any("\ud800" <= letter <= "\udfff" for letter in content):
            raise DataError("the text has a character that UTF-8 cannot write")
        if not len(ids := next(iter(self.tokenizer.encode([content], self._tokenizer_folder)))):
            raise DataError("the text has no letter that the tokenizer reads")
        return ids

    def save_encoder(self, folder: Path) -> None:
        """Copies the tokenizer, if it was learned."""
        if (learned := self.folder / TOKENIZER_FILE).is_file():
            write_text(folder / TOKENIZER_FILE, learned.read_text(encoding="utf-8"))

    def class_names(self) -> tuple[str, ...]:
        return tuple(self.facts().get("classes", ()))

    def tokenizer_digest(self) -> str:
        """sha256 of the tokenizer that encodes new texts, or the name of one that needs no file."""
        return "bytes" if self.tokenizer.kind == "bytes" else digest_of(self._tokenizer_folder / TOKENIZER_FILE)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"tokenizer": self.tokenizer_digest()}

    def check_encoding(self, state_dict: Mapping[str, Any]) -> None:
        theirs, ours = str(state_dict.get("tokenizer")), self.tokenizer_digest()
        if theirs != ours:
            raise DataError(
                f"{self.title}: the checkpoint was trained with another tokenizer ({theirs[:12]}) than that in "
                f"{self._tokenizer_folder} ({ours[:12]}); use the texts and options of that training run, or in both "
                "runs data.tokens=bytes or the same data.tokenizer_folder"
            )

    def prepare(self) -> Path:
        split = {"test_share": self.test_share, "split_seed": self.split_seed} if self.test_share else {}
        if self.tokenizer.learns:
            split |= {"val_fraction": self.val_fraction, "split_seed": self.split_seed}
        key = {"title": self.title, "identity": 2, **self.source(), **self.tokenizer.key(), **split}
        folder = cached_folder(self.path, self.title, key, self._build)
        kept, trained = folder / TOKENIZER_FILE, (self.plan.run_folder or folder) / TOKENIZER_FILE
        if not kept.is_file() or not trained.is_file() or digest_of(kept) == digest_of(trained):
            return folder
        return cached_folder(self.path, self.title, {**key, "trained": trained}, partial(self._build, trained=trained))

    def content_sha256(self) -> str:
        """sha256 of the texts, their targets and given splits; not of tokens, which are learned from a fold's texts."""
        facts = self.facts()
        return hashlib.sha256(json.dumps([facts["sha256"], facts["given"]]).encode()).hexdigest()

    def _build(self, folder: Path, trained: Path | None = None) -> None:
        """Makes the cache with the tokenizer in the file `trained`, or with one that learns."""
        parts = self.read()
        every = [text for part in parts.values() for text in part]
        for text in every:  # before a tokenizer learns from them for minutes
            if not text.content.strip():
                raise _empty_text(text)
        given = {stage: len(part) for stage, part in parts.items()}
        parts = self.with_test(parts)
        names, targets = self.answers_of(parts)
        log.info(f"{self.title}: turning {len(every):,} texts into tokens ({self.tokenizer.kind}), once for all runs")
        if trained is None:
            self.tokenizer.train(self.texts_that_train(parts, targets["train"]), folder)
        else:
            write_text(folder / TOKENIZER_FILE, trained.read_text(encoding="utf-8"))
        tokens = self._tokens_of([text for part in parts.values() for text in part], folder)
        for stage, part in parts.items():
            SequenceStore.write(folder, stage, islice(tokens, len(part)), targets[stage])
            digests = b"".join(hashlib.sha256(text.content.encode()).digest() for text in part)
            np.save(folder / f"{stage}_digests.npy", np.frombuffer(digests, np.uint8).reshape(-1, 32))
            Strings.write(folder, f"{IDENTITY}{stage}", (self.short_place(text.place) for text in part))
        facts = {**names, "sha256": digest_texts(every), "given": given}
        (folder / self.facts_file).write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    def _tokens_of(self, texts: Sequence[Text], folder: Path) -> Iterator[np.ndarray]:
        """The tokens (n,) of each text. Raises DataError for a text that the tokenizer empties."""
        tokens = self.tokenizer.encode([text.content for text in texts], folder)
        for text, ids in zip(texts, paced(tokens, "texts", len(texts)), strict=True):
            if not len(ids):
                raise _empty_text(text)
            yield ids

    def texts_that_train(self, parts: Texts, targets: np.ndarray) -> list[str]:
        """The training texts, with `targets` (n, ...), without those for validation: the tokenizer learns from them."""
        training = [text.content for text in parts["train"]]
        return [training[row] for row in self.held_out(targets, parts)[0].sort().values.tolist()]

    def answers_of(self, parts: Texts) -> tuple[dict[str, list[str]], dict[Stage, np.ndarray]]:
        """`answers` of all splits, with the targets of each. Raises DataError."""
        names, targets = self.answers([(stage, text.place, text.label) for stage in parts for text in parts[stage]])
        ends = np.cumsum([len(part) for part in parts.values()])
        return names, dict(zip(parts, np.split(targets, ends[:-1]), strict=True))

    def answers(self, examples: Sequence[Labelled]) -> tuple[dict[str, list[str]], np.ndarray]:
        """The names of classes or labels, for `facts`, and the targets. Raises DataError."""
        classes, numbers = number_classes([(stage, place, str(label)) for stage, place, label in examples], "texts")
        return {"classes": classes}, numbers

    def with_test(self, parts: Texts) -> Texts:
        """The splits; without a test split, `test_share` of the training texts are one, both in their order.

        Raises DataError.
        """
        if "test" in parts or not self.test_share:
            return parts
        training = parts["train"]
        names = [text.label if isinstance(text.label, str) else "" for text in training]
        numbers = {name: number for number, name in enumerate(sorted(set(names)))}
        targets = torch.tensor([numbers[name] for name in names])
        kept, held = hold_out(targets, self.test_share, self.split_seed, self.title, "test")
        rest, test = ([training[i] for i in rows.sort().values.tolist()] for rows in (kept, held))
        return {**parts, "train": rest, "test": test}

    def short_place(self, place: str) -> str:
        """The place of a text without the folder of the data: "texts.csv, line 7"."""
        return Path(place).name


def digest_texts(texts: list[Text]) -> str:
    """sha256 of texts and labels in their given order."""
    found = hashlib.sha256()
    for text in texts:
        found.update(f"{text.label}\0{text.content}\0".encode())
    return found.hexdigest()


def _empty_text(text: Text) -> DataError:
    return DataError(f"{text.place} has an empty text; delete the row or file, or add its text")
