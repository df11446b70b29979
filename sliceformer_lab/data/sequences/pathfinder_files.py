"""Files of Pathfinder images that all processes map into memory: drawn shard by shard, or read from PNGs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path

import numpy as np

from sliceformer_lab.data.download import unwritable_folder
from sliceformer_lab.data.images.picture_files import open_picture
from sliceformer_lab.data.parallel import Pace, in_order
from sliceformer_lab.data.sequences.snake_board import SnakeOptions
from sliceformer_lab.data.sequences.snakes import Snakes
from sliceformer_lab.errors import DataError
from sliceformer_lab.runs.files import whole_file

IMAGES_PER_SHARD = 250  # images; an interrupted process draws its whole shard again

Counts = Mapping[str, int]  # images of each split, in their order


@dataclass(frozen=True)
class Shard:
    """Consecutive images of a split, and the folder for their files."""

    folder: Path
    options: SnakeOptions
    seed: int
    stage: str
    number: int
    rows: range  # in the split
    first: int  # index of the first one among all images of the seed

    @property
    def labels(self) -> Path:
        """The file of everything but the pixels. It is written last, so a shard with this file is complete."""
        return self.folder / f"{self.stage}_labels_{self.number:04}.npz"


def split_sizes(count: int) -> dict[str, int]:
    """Sizes of the training, validation and test split of `count` images: 80, 10 and 10 percent."""
    return {"train": count * 8 // 10, "val": count // 10, "test": count - count * 8 // 10 - count // 10}


def generate(folder: Path, options: SnakeOptions, seed: int, counts: Counts, processes: int | None) -> None:
    """Draw the splits of a seed into a folder; continues an interrupted call.

    Writes `{stage}_tokens.npy` (n * pixels,) uint8, offsets and targets as a SequenceStore reads them, and in
    `{stage}_labels_{shard}.npz` the labels `label` (n,) and hashes of the pixels `sums` (n,). Raises DataError.
    """
    for stage, count in counts.items():
        reserve(folder, stage, count, options.size)
    shards = _list_shards(folder, options, seed, counts)
    missing = [shard for shard in shards if not shard.labels.is_file()]
    done = sum(len(shard.rows) for shard in shards) - sum(len(shard.rows) for shard in missing)
    pace = Pace("images", sum(counts.values()))
    for shard, _ in zip(missing, in_order(draw_shard, missing, processes), strict=True):
        done += len(shard.rows)
        pace.update(done)
    for stage in counts:
        labels = [np.load(shard.labels)["label"] for shard in shards if shard.stage == stage]
        np.save(folder / f"{stage}_targets.npy", np.concatenate([np.empty(0, np.int64), *labels]))
    _check_distinct(shards)
    for unfinished in folder.glob("*.unfinished"):  # of killed processes
        unfinished.unlink()


def draw_shard(shard: Shard) -> None:
    """Draw the images of a shard into its files. Raises DataError if they cannot be written."""
    snakes = Snakes(shard.options)
    drawings = [snakes.draw(shard.seed, shard.first + row) for row in range(len(shard.rows))]
    pixels = np.array([drawing.pixels for drawing in drawings])
    labels = np.array([drawing.label for drawing in drawings], dtype=np.int64)
    sums = [int.from_bytes(blake2b(image.tobytes(), digest_size=7).digest()) for image in pixels]
    try:
        write_pixels(shard.folder, shard.stage, shard.rows.start, pixels)
        with whole_file(shard.labels) as unfinished, unfinished.open("wb") as file:
            np.savez_compressed(file, label=labels, sums=np.array(sums))
    except OSError as error:
        raise unwritable_folder(shard.folder, error) from error


def reserve(folder: Path, stage: str, count: int, size: int) -> None:
    """Make a file for `count` square images of a split, unless it is there, and write their offsets."""
    path = folder / f"{stage}_tokens.npy"
    if not path.is_file():
        with whole_file(path) as unfinished:
            np.lib.format.open_memmap(unfinished, "w+", np.uint8, (count * size * size,)).flush()
    np.save(folder / f"{stage}_offsets.npy", np.arange(count + 1, dtype=np.int64) * size * size)


def write_pixels(folder: Path, stage: str, start: int, images: np.ndarray) -> None:
    """Write images (n, H, W) uint8 into the reserved file of a split, from row `start` on. Raises OSError."""
    path = folder / f"{stage}_tokens.npy"
    reserved = np.load(path, mmap_mode="r")
    header = path.stat().st_size - reserved.nbytes
    with path.open("r+b") as file:  # on a full disk, a memory mapping would kill the process
        file.seek(header + start * images[0].size)
        file.write(images.tobytes())


def read_images(folder: Path, files: list[Path], labels: list[int], size: int) -> None:
    """Write the splits of images in files as `generate` does. Raises DataError."""
    pace, done = Pace("images", len(files)), 0
    for stage, count in split_sizes(len(files)).items():
        reserve(folder, stage, count, size)
        np.save(folder / f"{stage}_targets.npy", np.array(labels[done : done + count], np.int64))
        for start in range(0, count, IMAGES_PER_SHARD):
            part = files[done : done + min(IMAGES_PER_SHARD, count - start)]
            write_pixels(folder, stage, start, np.stack([_read_pixels(file, size) for file in part]))
            done += len(part)
            pace.update(done)


def _read_pixels(file: Path, size: int) -> np.ndarray:
    with open_picture(file) as image:
        pixels = np.asarray(image.convert("L"))
    if pixels.shape != (size, size):
        raise DataError(f"{file} has {pixels.shape[0]} x {pixels.shape[1]} pixels, expected {size} x {size}")
    return pixels


def _list_shards(folder: Path, options: SnakeOptions, seed: int, counts: Counts) -> list[Shard]:
    firsts = accumulate(counts.values(), initial=0)
    return [
        Shard(folder, options, seed, stage, number, range(start, min(start + IMAGES_PER_SHARD, count)), first + start)
        for (stage, count), first in zip(counts.items(), firsts, strict=False)
        for number, start in enumerate(range(0, count, IMAGES_PER_SHARD))
    ]


def _check_distinct(shards: Iterable[Shard]) -> None:
    """Raises DataError if two images are equal, because the splits must be disjoint."""
    sums = np.concatenate([np.load(shard.labels)["sums"] for shard in shards])
    if len(np.unique(sums)) < len(sums):
        raise DataError(
            f"{len(sums) - len(np.unique(sums))} images were drawn twice; choose another data.generator_seed"
        )
