"""Pathfinder's pictures in files that all processes map into memory: drawn shard by shard, or read from PNGs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
from PIL import Image

from sliceformer_lab.data.parallel import Pace, in_order
from sliceformer_lab.data.sequences.snakes import SnakeOptions, Snakes
from sliceformer_lab.errors import DataError

SHARD = 250  # pictures; what a process draws again after a stop
PARTS = ("pixels", "label", "markers", "centres", "orientations")

Counts = Mapping[str, int]  # pictures of each split, in their order


@dataclass(frozen=True)
class Shard:
    """Some of a split's pictures, and where they go."""

    folder: Path
    options: SnakeOptions
    seed: int
    stage: str
    number: int
    rows: range  # in the split
    first: int  # index of the first among all pictures of the seed

    @property
    def paddles(self) -> Path:
        """The file of all but the pixels; it is written last, so what it is about is whole where it is."""
        return self.folder / f"{self.stage}_paddles_{self.number:04}.npz"


def divided(count: int) -> dict[str, int]:
    """The sizes of training, validation and test split of `count` pictures: 80, 10 and 10 percent, in their order."""
    return {"train": count * 8 // 10, "val": count // 10, "test": count - count * 8 // 10 - count // 10}


def generate(folder: Path, options: SnakeOptions, seed: int, counts: Counts, processes: int | None) -> None:
    """Draw the splits of a seed into a folder, going on where an earlier call was stopped.

    Leaves `{stage}_tokens.npy` (n * pixels) uint8, offsets and targets as a SequenceStore reads them, and the lists of
    paddles: `{stage}_paddles_{shard}.npz` with label (n,), markers (n, 2, 2), centres (n, P, 2), orientations (n, P)
    and sums (n,) of the pixels; `paddle_snakes.npy` (P,) says which snake a paddle is of. Raises DataError.
    """
    for stage, count in counts.items():
        reserve(folder, stage, count, options.size)
    np.save(folder / "paddle_snakes.npy", options.snake_ids())
    shards = _shards(folder, options, seed, counts)
    missing = [shard for shard in shards if not shard.paddles.is_file()]
    done = sum(len(shard.rows) for shard in shards) - sum(len(shard.rows) for shard in missing)
    pace = Pace("pictures", sum(counts.values()), done=done)
    for shard, _ in zip(missing, in_order(draw_shard, missing, processes), strict=True):
        done += len(shard.rows)
        pace.update(done)
    for stage in counts:
        labels = [np.load(shard.paddles)["label"] for shard in shards if shard.stage == stage]
        np.save(folder / f"{stage}_targets.npy", np.concatenate([np.empty(0, np.int64), *labels]))
    _check_distinct(shards)
    for partial in folder.glob("*.partial"):
        partial.unlink()


def draw_shard(shard: Shard) -> None:
    """Draw the pictures of a shard and put them into its files. Raises DataError where they cannot be written."""
    snakes = Snakes(shard.options)
    drawings = [snakes.draw(shard.seed, shard.first + row) for row in range(len(shard.rows))]
    made = {part: np.array([getattr(drawing, part) for drawing in drawings]) for part in PARTS}
    pixels = made.pop("pixels")
    partial = shard.paddles.with_suffix(".partial")
    try:
        put_pixels(shard.folder, shard.stage, shard.rows.start, pixels)
        with partial.open("wb") as file:
            np.savez_compressed(
                file,
                label=made["label"].astype(np.int64),
                markers=made["markers"],
                centres=made["centres"].astype(np.float16),  # halves of pixels: exact
                orientations=made["orientations"].astype(np.float16),
                sums=np.array([_sum(picture) for picture in pixels]),
            )
        partial.replace(shard.paddles)
    except OSError as error:
        raise DataError(
            f"{shard.folder} cannot be written ({error}); say where data may live with data.root=..."
        ) from error


def reserve(folder: Path, stage: str, count: int, size: int) -> None:
    """A file for `count` square pictures of a split and its offsets, unless they are there."""
    path = folder / f"{stage}_tokens.npy"
    if not path.is_file():
        partial = path.with_suffix(".partial")
        np.lib.format.open_memmap(partial, "w+", np.uint8, (count * size * size,)).flush()
        partial.replace(path)
    np.save(folder / f"{stage}_offsets.npy", np.arange(count + 1, dtype=np.int64) * size * size)


def put_pixels(folder: Path, stage: str, start: int, pictures: np.ndarray) -> None:
    """Write pictures (n, H, W) uint8 into the reserved file of a split, from row `start` on. Raises OSError."""
    path = folder / f"{stage}_tokens.npy"
    reserved = np.load(path, mmap_mode="r")
    header = path.stat().st_size - reserved.nbytes
    with path.open("r+b") as file:  # a mapping would end the process by a signal when the disk is full
        file.seek(header + start * pictures[0].size)
        file.write(pictures.tobytes())


def read_pictures(folder: Path, files: list[Path], labels: list[int], size: int) -> None:
    """Keep pictures in their order, `divided`, as `generate` does but for paddles. Raises DataError."""
    pace, done = Pace("pictures", len(files)), 0
    for stage, count in divided(len(files)).items():
        reserve(folder, stage, count, size)
        np.save(folder / f"{stage}_targets.npy", np.array(labels[done : done + count], np.int64))
        for start in range(0, count, SHARD):
            part = files[done : done + min(SHARD, count - start)]
            put_pixels(folder, stage, start, np.stack([_decoded(file, size) for file in part]))
            done += len(part)
            pace.update(done)


def _decoded(file: Path, size: int) -> np.ndarray:
    try:
        with Image.open(file) as image:
            pixels = np.asarray(image.convert("L"))
    except (OSError, SyntaxError, ValueError) as error:  # PIL has no error class of its own
        raise DataError(f"{file} cannot be read as an image ({error}); fetch it again") from error
    if pixels.shape != (size, size):
        raise DataError(f"{file} has {pixels.shape[0]} x {pixels.shape[1]} pixels, expected {size} x {size}")
    return pixels


def _shards(folder: Path, options: SnakeOptions, seed: int, counts: Counts) -> list[Shard]:
    firsts = accumulate(counts.values(), initial=0)
    return [
        Shard(folder, options, seed, stage, number, range(start, min(start + SHARD, count)), first + start)
        for (stage, count), first in zip(counts.items(), firsts, strict=False)
        for number, start in enumerate(range(0, count, SHARD))
    ]


def _check_distinct(shards: Iterable[Shard]) -> None:
    """Raises DataError if two pictures are the same: training, validation and test pictures are disjoint."""
    sums = np.concatenate([np.load(shard.paddles)["sums"] for shard in shards])
    if len(np.unique(sums)) < len(sums):
        raise DataError(
            f"{len(sums) - len(np.unique(sums))} pictures turned up twice; choose another data.generator_seed"
        )


def _sum(picture: np.ndarray) -> int:
    return int.from_bytes(hashlib.blake2b(picture.tobytes(), digest_size=7).digest())
