"""Labelled texts: read once, kept as tokens beside the tokenizer that made them."""

import hashlib
import json
import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from sliceformer_lab.data.base import STAGES, Positive, Stage
from sliceformer_lab.data.cache import cached, manifest
from sliceformer_lab.data.images.base import carve
from sliceformer_lab.data.sequences.base import SequenceData, SequenceStore
from sliceformer_lab.data.sequences.tokenizer import TOKENIZER_FILE, Tokenizer
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.errors import DataError

log = logging.getLogger(__name__)

TEXTS_FILE = "texts.json"  # in the cache folder: classes, and a digest of all texts


@dataclass(frozen=True)
class Text:
    """A text, its class by name, and where it was read, for messages."""

    content: str
    label: str
    place: str


Texts = Mapping[Stage, list[Text]]


@dataclass(kw_only=True, eq=False, repr=False)
class TextData(SequenceData):
    """Texts with one class each. A subclass says which files hold them and how they become tokens."""

    root: str
    max_len: Positive = 512

    @property
    def path(self) -> Path:
        """Where what is prepared is kept."""
        return Path(self.root).expanduser()

    @property
    @abstractmethod
    def tokenizer(self) -> Tokenizer:
        """What turns texts into tokens."""

    @property
    def test_share(self) -> float:
        """How much of every class is held out to test on, where the texts have no test part of their own."""
        return 0.0

    @abstractmethod
    def source(self) -> dict[str, Any]:
        """What tells the files from any others without reading them. Raises DataError if they are not there."""

    @abstractmethod
    def read(self) -> Texts:
        """The parts that the texts come in, "train" at least. Raises DataError."""

    @property
    def spec(self) -> DataSpec:
        return self._spec(num_classes=2)

    def _spec(self, num_classes: int) -> DataSpec:
        return DataSpec(
            name=self.title,
            num_classes=num_classes,
            max_len=self.max_len,
            vocab_size=self.tokenizer.vocab_size,
            ragged=True,
        )

    def prepare_data(self) -> None:
        """Read and tokenize, unless an earlier run has. Raises DataError."""
        self.folder()

    def folder(self) -> Path:
        return self._folder

    def stages(self) -> tuple[Stage, ...]:
        return tuple(stage for stage in STAGES if SequenceStore.is_in(self.folder(), stage))

    def facts(self) -> dict[str, Any]:
        """Of the texts: `classes`, their names in the order of their numbers, and `sha256` of texts and labels."""
        facts: dict[str, Any] = json.loads((self.folder() / TEXTS_FILE).read_text(encoding="utf-8"))
        return facts

    def tokenizer_digest(self) -> str:
        """sha256 of the learned tokenizer, or the name of one that learns nothing."""
        learned = manifest(self.folder())["files"].get(TOKENIZER_FILE)
        return self.tokenizer.kind if learned is None else str(learned["sha256"])

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps of the data."""
        return {"tokenizer": self.tokenizer_digest()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Raises DataError if a checkpoint was trained with another tokenizer."""
        theirs, ours = str(state_dict["tokenizer"]), self.tokenizer_digest()
        if theirs != ours:
            raise DataError(
                f"{self.title}: the checkpoint was trained with another tokenizer ({theirs[:12]}) than the one of "
                f"{self.folder()} ({ours[:12]}); give it the texts and options it was trained with"
            )

    @cached_property
    def _folder(self) -> Path:
        held_out = {"test_share": self.test_share, "split_seed": self.split_seed} if self.test_share else {}
        key = {"title": self.title, **self.source(), **self.tokenizer.key(), **held_out}
        return cached(self.path, self.title, key, self._build)

    def _build(self, folder: Path) -> None:
        parts = self.read()
        every = [text for part in parts.values() for text in part]
        for text in every:
            if not text.content.strip():
                raise DataError(f"{text.place} has an empty text; fill it or delete it")
        if "test" not in parts:
            parts = {**parts, **self._hold_out(parts["train"])}
        classes = _class_names(parts)
        log.info(f"{self.title}: turning {len(every):,} texts into tokens ({self.tokenizer.kind})")
        self.tokenizer.learn([text.content for text in parts["train"]], folder)
        for stage, part in parts.items():
            tokens = self.tokenizer.encode([text.content for text in part], folder)
            SequenceStore.write(folder, stage, tokens, [classes.index(text.label) for text in part])
        facts = {"classes": classes, "sha256": digest(every)}
        (folder / TEXTS_FILE).write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    def _hold_out(self, training: list[Text]) -> dict[Stage, list[Text]]:
        """Training texts, and of every class the share to test on."""
        numbers = {label: number for number, label in enumerate(sorted({text.label for text in training}))}
        kept, held = carve(torch.tensor([numbers[text.label] for text in training]), self.test_share, self.split_seed)
        if not len(held):
            raise DataError(
                f"{self.title}: holding out {self.test_share} of every class for testing takes none of "
                f"{len(training)} texts; add texts or hold out more"
            )
        return {
            "train": [training[i] for i in kept.sort().values.tolist()],
            "test": [training[i] for i in held.sort().values.tolist()],
        }


def digest(texts: list[Text]) -> str:
    """sha256 of texts and labels in their order."""
    found = hashlib.sha256()
    for text in texts:
        found.update(f"{text.label}\0{text.content}\0".encode())
    return found.hexdigest()


def listing(files: Sequence[Path]) -> str:
    """sha256 of names, sizes and times of change: another one where a file is another, without reading any."""
    found = hashlib.sha256()
    for file in files:
        known = file.stat()
        found.update(f"{file.parent.name}/{file.name} {known.st_size} {known.st_mtime_ns}\n".encode())
    return found.hexdigest()


def _class_names(parts: Texts) -> list[str]:
    """The labels of the training texts: numbers by size, others by name. Raises DataError for a lone or foreign one."""
    labels = {text.label for text in parts["train"]}
    if len(labels) < 2:
        raise DataError(
            f"{parts['train'][0].place} and all other training texts are of the class {min(labels)!r}; "
            "at least two classes are needed"
        )
    for stage, part in parts.items():
        for text in part:
            if text.label not in labels:
                raise DataError(
                    f"{text.place} is of the class {text.label!r}, which only the {stage} part has; "
                    "add training texts of it or delete it"
                )
    as_numbers = all(label.removeprefix("-").isdecimal() for label in labels)
    return sorted(labels, key=int) if as_numbers else sorted(labels)
