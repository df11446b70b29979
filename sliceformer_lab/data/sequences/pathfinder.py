"""Pathfinder and Path-X of the Long Range Arena: drawn here, or read from the published files."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from sliceformer_lab.data.base import NonNegative, Positive, Stage
from sliceformer_lab.data.cache import cached
from sliceformer_lab.data.images.contact_sheet import contact_sheet
from sliceformer_lab.data.sequences.base import SequenceData, SequenceSplit, SequenceStore
from sliceformer_lab.data.sequences.pathfinder_files import divided, generate, read_pictures
from sliceformer_lab.data.sequences.snakes import GENERATOR_VERSION, Difficulty, SnakeOptions
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.data.table_files import stamps
from sliceformer_lab.errors import DataError
from sliceformer_lab.order import TokenOrder, token_order

PUBLISHED_FOLDERS: dict[Difficulty, str] = {
    "easy": "curv_baseline",
    "intermediate": "curv_contour_length_9",
    "hard": "curv_contour_length_14",
}
PUBLISHED = 200_000  # pictures, of which some may be empty files
EXAMPLES = 200  # read for the contact sheet

log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False, repr=False)
class LRAPathfinder(SequenceData):
    """Are two marked ends on one dashed curve? Pictures of 32 x 32 pixels, one after the other: two classes.

    A pixel is one of 256 tokens, or with `pixels: values` a number in -1..1 (MEGA). The splits are 80, 10 and 10
    percent of the pictures in their order, as published.
    """

    title = "lra_pathfinder"
    size: ClassVar[Literal[32, 128]] = 32

    root: str
    source: Literal["generated", "official"] = "generated"
    difficulty: Difficulty = "hard"
    num_examples: Annotated[int, Field(ge=10)] = PUBLISHED
    num_distractors: NonNegative | None = None
    generator_seed: NonNegative = 0
    processes: Positive | None = None
    pixels: Literal["tokens", "values"] = "tokens"
    token_order: TokenOrder = "raster"
    max_len: Annotated[int, Field(ge=1, le=1024)] = 1024
    batch_size: Positive = 512

    @property
    def spec(self) -> DataSpec:
        """Its name carries the difficulty and the length."""
        tokens = self.pixels == "tokens"
        fewer = "" if self.num_distractors is None else f"_{self.num_distractors}_distractors"
        return DataSpec(
            name=f"{self.title}_{self.difficulty}{fewer}_{self.max_len}",
            num_classes=2,
            max_len=self.max_len,
            vocab_size=256 if tokens else 0,
            channels=0 if tokens else 1,
        )

    @property
    def path(self) -> Path:
        return Path(self.root).expanduser()

    @property
    def official_folder(self) -> Path:
        return self.path / f"pathfinder{self.size}" / PUBLISHED_FOLDERS[self.difficulty]

    def stages(self) -> tuple[Stage, ...]:
        return ("train", "val", "test")

    def prepare_data(self) -> None:
        """Draw the pictures, or read the published files, into a cache. Raises DataError."""
        self.folder()

    def folder(self) -> Path:
        name = f"{self.title}-{self.difficulty}"
        if self.source == "official":
            return cached(self.path, f"{name}-official", {"files": stamps(self._metadata_files())}, self._read)
        options = {name: getattr(self, name) for name in ("difficulty", "num_examples", "num_distractors")}
        key = {"generator": GENERATOR_VERSION, "size": self.size, "seed": self.generator_seed, **options}
        return cached(self.path, name, key, self._generate)

    @property
    def snake_options(self) -> SnakeOptions:
        """What is drawn."""
        return SnakeOptions.published(self.size, self.difficulty, self.num_distractors)

    def _generate(self, folder: Path) -> None:
        counts = divided(self.num_examples)
        generate(folder, self.snake_options, self.generator_seed, counts, self.processes)
        paddles = np.load(folder / "train_paddles_0000.npz")
        self._draw_sheet(folder, {name: paddles[name] for name in paddles}, np.load(folder / "paddle_snakes.npy"))

    def _read(self, folder: Path) -> None:
        rows = [row for file in self._metadata_files() for row in _listed(file, self.official_folder)]
        filled = [(picture, label) for picture, label in rows if picture.stat().st_size]
        if len(filled) < len(rows):
            log.info(f"{self.title}: {len(rows) - len(filled):,} of {len(rows):,} pictures are empty files, left out")
        if len(filled) < 10:
            raise DataError(f"{self.official_folder} lists {len(filled)} pictures, too few to divide into three splits")
        pictures, labels = zip(*filled, strict=True)
        read_pictures(folder, list(pictures), list(labels), self.size)
        self._draw_sheet(folder, None, None)

    def _draw_sheet(self, folder: Path, paddles: dict[str, np.ndarray] | None, snakes: np.ndarray | None) -> None:
        store = SequenceStore.open(folder, "train")
        count = min(EXAMPLES, len(store) if paddles is None else len(paddles["label"]))
        pixels = np.array(store.tokens[: count * self.size**2]).reshape(count, self.size, self.size)
        contact_sheet(folder / "contact_sheet.png", pixels, np.array(store.targets[:count]), paddles, snakes)

    def _metadata_files(self) -> list[Path]:
        """In the order of their numbers. Raises DataError where there is none."""
        folder = self.official_folder / "metadata"
        files = [file for file in folder.glob("*.npy") if file.stem.isdecimal()]
        if not files:
            raise DataError(
                f"{folder} holds no lists of pictures (0.npy and so on); unpack the Long Range Arena's "
                f"pathfinder{self.size} into {self.path}, or say data.source=generated"
            )
        return sorted(files, key=lambda file: int(file.stem))

    def is_official(self) -> tuple[bool, str]:
        if self.source == "generated":
            return False, "drawn by our own generator from the published procedure; see sliceformer_lab/data/snakes.py"
        count = sum(len(SequenceStore.open(self.folder(), stage)) for stage in self.stages())
        return False, f"read from {count:,} pictures in the published layout; no checksums are published"

    def fingerprint(self) -> dict[str, Any]:
        found = super().fingerprint()
        if self.source == "generated":
            found["name"] = f"{self.spec.name} (generated with seed {self.generator_seed})"
        return found

    def split(self, store: SequenceStore, rows: np.ndarray) -> SequenceSplit:
        scale = None if self.pixels == "tokens" else (127.5, 127.5)
        order = token_order(self.token_order, (self.size, self.size), first=self.max_len)
        places = None if order is None else order.numpy()
        return SequenceSplit(store, rows, self.max_len, self.pad_to_max_len, scale, order=places)


@dataclass(kw_only=True, eq=False, repr=False)
class LRAPathX(LRAPathfinder):
    """Pathfinder in pictures of 128 x 128 pixels: sequences of 16,384."""

    title = "lra_pathx"
    size: ClassVar[Literal[32, 128]] = 128

    max_len: Annotated[int, Field(ge=1, le=16_384)] = 16_384
    batch_size: Positive = 128
    eval_batch_size: Positive = 32


def _listed(file: Path, folder: Path) -> list[tuple[Path, int]]:
    """Pictures and labels of a list: rows of folder, file, number, label and more, divided by spaces.

    Raises DataError naming the row that is not so, or whose picture is missing.
    """
    pictures = []
    try:
        rows = file.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not text ({error.reason}); expected the lists of the Long Range Arena") from None
    for number, row in enumerate(rows, start=1):
        fields = row.split()
        if not fields:
            continue
        if len(fields) < 4 or fields[3] not in ("0", "1"):
            raise DataError(
                f"{file}, line {number}: given {row[:80]!r}, expected FOLDER FILE NUMBER LABEL with label 0 or 1"
            )
        picture = folder / fields[0] / fields[1]
        if not picture.is_file():
            raise DataError(f"{file}, line {number}: {picture} is missing; unpack the archive again")
        pictures.append((picture, int(fields[3])))
    return pictures
