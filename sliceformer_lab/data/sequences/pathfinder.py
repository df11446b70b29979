"""Pathfinder and Path-X of the Long Range Arena: generated, or read from the published files."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from sliceformer_lab.config.option_types import Count, Natural
from sliceformer_lab.data.cache import by_name, cached_folder, digest_of_stamps
from sliceformer_lab.data.sequences.base import GeneratedData, PixelData
from sliceformer_lab.data.sequences.pathfinder_files import generate, read_images, split_sizes
from sliceformer_lab.data.sequences.snake_board import Difficulty, SnakeOptions
from sliceformer_lab.data.sequences.snakes import GENERATOR_VERSION
from sliceformer_lab.errors import DataError

PUBLISHED_FOLDERS: dict[Difficulty, str] = {
    "easy": "curv_baseline",
    "intermediate": "curv_contour_length_9",
    "hard": "curv_contour_length_14",
}
PUBLISHED_IMAGES = 200_000  # images; some files may be empty

log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False, repr=False)
class LRAPathfinder(PixelData, GeneratedData):
    """Images of 32 x 32 pixels as sequences; the class says whether two marked ends belong to one dashed curve.

    With `pixels: values`, numbers are in -1..1 as in MEGA. The splits are the first 80, the next 10 and the last 10
    percent of the images, as published.
    """

    title = "lra_pathfinder"
    side: ClassVar[Literal[32, 128]] = 32
    scale = (127.5, 127.5)

    difficulty: Difficulty = "hard"
    num_examples: Annotated[int, Field(ge=10)] = PUBLISHED_IMAGES
    num_distractors: Natural | None = None
    max_len: Annotated[int, Field(ge=1, le=1024)] = 1024
    batch_size: Count = 512

    @property
    def set_name(self) -> str:
        """The name in `spec` without the length, with the difficulty."""
        fewer = "" if self.num_distractors is None else f"_{self.num_distractors}_distractors"
        return f"{self.title}_{self.difficulty}{fewer}"

    @property
    def official_folder(self) -> Path:
        return self.path / f"pathfinder{self.side}" / PUBLISHED_FOLDERS[self.difficulty]

    def class_names(self) -> tuple[str, ...]:
        return ("not connected", "connected")

    def prepare(self) -> Path:
        name = f"{self.title}-{self.difficulty}"
        if self.source == "official":
            key = {
                "files": by_name(self._metadata_files()),
                "images": lambda: digest_of_stamps(image for image, _ in self._listed_images()),
            }
            return cached_folder(self.path, f"{name}-official", key, self._read)
        options = {name: getattr(self, name) for name in ("difficulty", "num_examples", "num_distractors")}
        drawn = {"generator": GENERATOR_VERSION, "size": self.side, "seed": self.generator_seed, **options}
        return cached_folder(self.path, name, drawn, self._generate, continues=True)

    def _generate(self, folder: Path) -> None:
        options = SnakeOptions.published(self.side, self.difficulty, self.num_distractors)
        generate(folder, options, self.generator_seed, split_sizes(self.num_examples), self.processes)

    def _read(self, folder: Path) -> None:
        rows = self._listed_images()
        filled = [(image, label) for image, label in rows if image.stat().st_size]
        if len(filled) < len(rows):
            log.info(f"{self.title}: {len(rows) - len(filled):,} of {len(rows):,} images are empty files, left out")
        if len(filled) < 10:
            raise DataError(f"{self.official_folder} lists {len(filled)} images, expected at least 10")
        images, labels = zip(*filled, strict=True)
        read_images(folder, list(images), list(labels), self.side)

    def _listed_images(self) -> list[tuple[Path, int]]:
        """Images and labels of all lists. Raises DataError."""
        return [row for file in self._metadata_files() for row in _read_list(file, self.official_folder)]

    def _metadata_files(self) -> list[Path]:
        """The lists of images, by number. Raises DataError if there is none."""
        folder = self.official_folder / "metadata"
        files = [file for file in folder.glob("*.npy") if file.stem.isdecimal()]
        if not files:
            raise DataError(
                f"{folder} holds no lists of images (0.npy and so on); unpack the Long Range Arena's "
                f"pathfinder{self.side} into {self.path}, or set data.source=generated"
            )
        return sorted(files, key=lambda file: int(file.stem))

    def is_official(self) -> tuple[bool, str]:
        if self.source == "generated":
            return False, "drawn by our own generator, which follows the published one; see data/sequences/snakes.py"
        count = sum(self.num_stored().values())
        return False, f"read from {count:,} images in the published layout; no checksums are published"


@dataclass(kw_only=True, eq=False, repr=False)
class LRAPathX(LRAPathfinder):
    """Pathfinder with images of 128 x 128 pixels: sequences of 16,384."""

    title = "lra_pathx"
    side: ClassVar[Literal[32, 128]] = 128

    max_len: Annotated[int, Field(ge=1, le=16_384)] = 16_384
    batch_size: Count = 128
    eval_batch_size: Count = 32


def _read_list(file: Path, folder: Path) -> list[tuple[Path, int]]:
    """Images and labels of a list, whose rows are folder, file, number, label and more, separated by spaces.

    Raises DataError naming a row with an error or a missing image.
    """
    images = []
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
        image = folder / fields[0] / fields[1]
        if not image.is_file():
            raise DataError(f"{file}, line {number}: {image} is missing; unpack the archive again")
        images.append((image, int(fields[3])))
    return images
