"""Tokenizers: one id per UTF-8 byte, pieces of words learned from texts, or a pretrained model's."""

import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from sliceformer_lab.data.cache import stamp_of
from sliceformer_lab.errors import DataError
from sliceformer_lab.runs.files import digest_of, write_text

if TYPE_CHECKING:
    import tokenizers

SPECIALS = ("[PAD]", "[UNK]", "[BOS]", "[EOS]", "[SEP]", "[CLS]", "[MASK]")  # ids 0 to 6 (Sliceformer's IMDB code)
NUM_BYTES = 256
TOKENIZER_FILE = "tokenizer.json"
CHUNK_TEXTS = 1000  # texts that are encoded at once
LONG_WORD = re.compile(r"(\S{1000})(?=\S)")  # learning pieces takes time quadratic in the length of a word

VocabSize = Annotated[int, Field(ge=len(SPECIALS) + NUM_BYTES, le=2**16)]
TokenKind = Literal["bytes", "bpe"]

os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")  # unset, the library warns in every data worker


class Tokenizer(ABC):
    """Turns texts into ids 1 to vocab_size - 1; 0 is padding."""

    kind: ClassVar[TokenKind | Literal["pretrained"]]
    rule: ClassVar[str]  # how a program outside this package makes the ids of a text
    learns: ClassVar[bool] = False  # from the texts that `train` is given
    vocab_size: int

    def adds_end(self, folder: Path) -> bool:
        """Whether `encode` puts a special token after every text, as BERT's puts [SEP]."""
        del folder
        return False

    def key(self) -> dict[str, Any]:
        """Everything that decides its ids except the texts that it learned from."""
        return {"tokens": self.kind, "vocab_size": self.vocab_size}

    @abstractmethod
    def train(self, texts: Sequence[str], folder: Path) -> None:
        """Learn from texts and write into `folder` what `encode` needs."""

    @abstractmethod
    def encode(self, texts: Sequence[str], folder: Path) -> Iterator[np.ndarray]:
        """The ids (n,) uint16 of each text."""

    @abstractmethod
    def decode(self, ids: np.ndarray, folder: Path) -> str:
        """The text that `encode` made ids (n,) from; a pretrained tokenizer may have lost capitals and spaces."""


def pieces_for(num_characters: int) -> int:
    """A size of vocabulary for texts of this total length: hundreds of pieces, 500 to 16,000.

    The number of different words grows with the square root of a text's length (Heaps 1978). The factor gives 7,200
    pieces to 6,400 news items of 190 characters.
    """
    return min(max(100 * round(0.065 * math.sqrt(num_characters)), 500), 16_000)


@dataclass(frozen=True)
class ByteTokenizer(Tokenizer):
    """One token per UTF-8 byte: its value + 1, as in the Long Range Arena (Tay et al. 2021)."""

    kind = "bytes"
    rule = "the ids of a text are its UTF-8 bytes plus 1"
    vocab_size: int = 1 + NUM_BYTES

    def train(self, texts: Sequence[str], folder: Path) -> None:
        """Bytes need no training."""

    def encode(self, texts: Sequence[str], folder: Path) -> Iterator[np.ndarray]:
        del folder
        for text in texts:
            yield np.frombuffer(text.encode(), np.uint8).astype(np.uint16) + 1

    def decode(self, ids: np.ndarray, folder: Path) -> str:
        del folder
        return (ids - 1).astype(np.uint8).tobytes().decode()


@dataclass(frozen=True)
class PieceTokenizer(Tokenizer):
    """Pieces of words by byte-pair encoding of bytes: at most `vocab_size`, and fewer for few texts.

    No byte is unknown, and "[PAD]" in a text is ordinary text.
    Source: Sennrich et al. 2016; bytes as in Radford et al. 2019.
    """

    kind = "bpe"
    rule = (
        'the ids of a text are `tokenizers.Tokenizer.from_file("tokenizer.json").encode(text, '
        "add_special_tokens=False).ids`, with `encode_special_tokens = True` set on that tokenizer"
    )
    learns = True
    vocab_size: int = 16_000

    def train(self, texts: Sequence[str], folder: Path) -> None:
        import tokenizers
        from tokenizers import decoders, models, pre_tokenizers, trainers

        model = tokenizers.Tokenizer(models.BPE(unk_token="[UNK]"))
        model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        model.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=self.vocab_size,
            special_tokens=list(SPECIALS),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        model.train_from_iterator((LONG_WORD.sub("\\1\n", text) for text in texts), trainer)
        model.save(str(folder / TOKENIZER_FILE))

    def encode(self, texts: Sequence[str], folder: Path) -> Iterator[np.ndarray]:
        model = load_pieces(folder)
        for start in range(0, len(texts), CHUNK_TEXTS):
            for encoding in model.encode_batch_fast(list(texts[start : start + CHUNK_TEXTS]), add_special_tokens=False):
                yield np.array(encoding.ids, dtype=np.uint16)

    def decode(self, ids: np.ndarray, folder: Path) -> str:
        text: str = load_pieces(folder).decode(ids.tolist(), skip_special_tokens=False)
        return text


@dataclass(frozen=True)
class PretrainedTokenizer(Tokenizer):
    """The tokenizer in the folder of a pretrained model, with the tokens that it adds in front and at the end.

    Raises DataError for a folder without a tokenizer.json, or if its padding is not id 0 or its ids need 32 bits.
    """

    kind = "pretrained"
    rule = 'the ids of a text are `tokenizers.Tokenizer.from_file("tokenizer.json").encode(text).ids`, without padding'
    source: Path

    @property
    def vocab_size(self) -> int:  # type: ignore[override]
        """One more than the largest id."""
        return 1 + max(self._model(self.source).get_vocab().values())

    def adds_end(self, folder: Path) -> bool:
        return bool(self._model(folder).encode("a").special_tokens_mask[-1])

    def key(self) -> dict[str, Any]:
        return {"tokens": self.kind, "sha256": digest_of(self._checked_file())}

    def train(self, texts: Sequence[str], folder: Path) -> None:
        del texts  # it has learned already
        write_text(folder / TOKENIZER_FILE, self._checked_file().read_text(encoding="utf-8"))

    def encode(self, texts: Sequence[str], folder: Path) -> Iterator[np.ndarray]:
        for encoding in self._model(folder).encode_batch_fast(list(texts)):
            yield np.array(encoding.ids, dtype=np.uint16)

    def decode(self, ids: np.ndarray, folder: Path) -> str:
        text: str = self._model(folder).decode(ids.tolist())
        return text

    def _checked_file(self) -> Path:
        file = self.source / TOKENIZER_FILE
        try:
            model = self._model(self.source)
        except Exception as error:  # of the library, which has no class of its own for it
            raise DataError(
                f"data.tokenizer_folder={self.source}: has no readable {TOKENIZER_FILE} ({error})"
            ) from error
        if model.token_to_id("[PAD]") != 0 or self.vocab_size > 2**16:
            raise DataError(
                f"{file}: padding has the id {model.token_to_id('[PAD]')} of {self.vocab_size:,}; "
                "choose a tokenizer as BERT's, with [PAD] as id 0 of at most 65,536"
            )
        return file

    @staticmethod
    def _model(folder: Path) -> "tokenizers.Tokenizer":
        model = load_pieces(folder)
        model.no_truncation()  # some files cut and pad
        model.no_padding()
        return model


def load_pieces(folder: Path) -> "tokenizers.Tokenizer":
    """The tokenizer that `train` wrote into a folder, read once."""
    file = folder / TOKENIZER_FILE
    return _read_pieces(file, tuple(stamp_of(file)))


@lru_cache(maxsize=4)
def _read_pieces(file: Path, stamp: tuple[int, ...]) -> "tokenizers.Tokenizer":
    import tokenizers

    del stamp  # a file that was written again is another one
    model = tokenizers.Tokenizer.from_file(str(file))
    model.encode_special_tokens = True  # "[PAD]" in a text is five characters, not padding
    return model
