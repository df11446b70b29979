"""Your own images with masks: the class of every pixel."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.lib.format import open_memmap
from PIL import Image
from pydantic import Field
from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torch import Tensor

from sliceformer_lab.batch import NO_CLASS, Batch
from sliceformer_lab.config.option_types import Count, Natural, Processes
from sliceformer_lab.data.cache import IDENTITY, cached_folder
from sliceformer_lab.data.cached_data import StoredSplit
from sliceformer_lab.data.class_names import stage_folders
from sliceformer_lab.data.images.base import checked_picture
from sliceformer_lab.data.images.crop_flip import ArrayTransform, random_crop_flip
from sliceformer_lab.data.images.folders import MAX_SIDE_PIXELS
from sliceformer_lab.data.images.image_pairs import MAX_CLASSES, Pair, Sizes, list_pairs, read_pair, resize_image
from sliceformer_lab.data.images.picture_files import picture_size
from sliceformer_lab.data.loader import Split
from sliceformer_lab.data.own_data import OwnFolder, sample_evenly
from sliceformer_lab.data.parallel import in_order, paced
from sliceformer_lab.data.spec import Choice, Content, DataSpec
from sliceformer_lab.data.splits import STAGES, Stage, split_rows
from sliceformer_lab.data.strings import Places, Strings
from sliceformer_lab.errors import DataError
from sliceformer_lab.order import TokenOrder

SIDE_STEP = 8  # pixels: sides that are chosen are multiples of it
NAMES = "classes.txt"
PIXELS, PARTS = "pixels.npy", "stages.npy"  # in the cache folder

Level = Annotated[int, Field(ge=0, le=255)]  # of a mask of 8 bits


@dataclass
class MaskSplit(StoredSplit):
    """Images with masks. Inputs (B, 3, H, W) float, targets (B, H, W) int64 with NO_CLASS."""

    pixels: np.ndarray  # (n, 4, H, W) uint8: red, green, blue, and class + 1 with 0 where there is none
    places: Places
    pad: int = 0  # pixels around the image from which it is cropped, in training
    mirror: bool = False  # with probability one half, in training

    def place(self, row: int) -> str:
        return self.places[self.rows[row]]

    def stored(self, row: int) -> np.ndarray:
        """The resized image (H, W, 3) uint8."""
        return np.array(self.pixels[self.rows[row], :3]).transpose(1, 2, 0)

    def targets_at(self, rows: list[int]) -> Tensor:
        return _encode_masks(torch.from_numpy(np.array(self.pixels[self.rows[rows], 3])))

    def batch(self, rows: list[int]) -> Batch:
        pixels = torch.from_numpy(np.array(self.pixels[self.rows[rows]]))
        if self.pad or self.mirror:  # of image and mask together: the border has no class
            pixels = random_crop_flip(pixels, self.pad, self.mirror)
        return Batch(NORMALISE(pixels[:, :3]), _encode_masks(pixels[:, 3]), torch.tensor(rows))


NORMALISE = ArrayTransform(IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD)


def _encode_masks(masks: Tensor) -> Tensor:
    classes = masks.long() - 1
    return classes.masked_fill(classes < 0, NO_CLASS)


@dataclass(kw_only=True, eq=False, repr=False)
class MaskFolder(OwnFolder):
    """Your own images with masks: root/train/images and root/train/masks, also val and test; or root/images and masks.

    The mask of images/NAME.jpg is masks/NAME.png: 8-bit grey or with a palette, its values are class numbers.
    root/classes.txt may name the classes, one a line. For a missing test or validation folder, `test_fraction` and then
    `val_fraction` are held out. Images are resized to `height` and `width` (bilinear, masks nearest) and kept in
    `cache`. Null sizes are the medians of the training images, reduced to a shorter side of at most MAX_SIDE_PIXELS.
    """

    title = "mask_folder"
    note = "your own images and masks; sha256 is of their resized pixels and classes"
    content_kind = "picture"
    takes_new = True
    facts_file = "masks.json"
    batch_sizes = (8, 32)

    height: Count | None = None
    width: Count | None = None
    values: tuple[Level, ...] | None = None
    ignore: Level | None = 255
    mirror: bool = True
    pad: Natural = 4
    token_order: TokenOrder = "raster"
    processes: Processes | None = None
    batch_size: Count | None = None
    eval_batch_size: Count = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.values is not None and len(set(self.values)) != len(self.values):
            raise ValueError(f"values={list(self.values)} names a value twice")

    @property
    def spec(self) -> DataSpec:
        """Reads all masks once. Raises DataError."""
        return DataSpec(
            name=self.own_name,
            num_classes=len(self.class_names()),
            image_size=self._sizes,
            channels=3,
            targets="pixels",
            token_order=self.token_order,
        )

    def class_names(self) -> tuple[str, ...]:
        """The lines of classes.txt, or numbers up to the largest in the masks."""
        return self._names or tuple(map(str, range(self.facts()["classes"])))

    def choices(self) -> list[Choice]:
        is_large = min(self._median_sizes) > MAX_SIDE_PIXELS
        note = f"; a shorter side of more than {MAX_SIDE_PIXELS} takes long on a CPU" if is_large else ""
        chosen = [
            Choice(f"data.{side}", size, f"the median training image has a {side} of {median} pixels{note}")
            for side, size, median in zip(("height", "width"), self._sizes, self._median_sizes, strict=True)
            if getattr(self, side) is None
        ]
        return [*chosen, *super().choices()]

    @cached_property
    def _names(self) -> tuple[str, ...]:
        file = self.path / NAMES
        if not file.is_file():
            return ()
        try:
            names = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{file} cannot be read as UTF-8 text ({error})") from error
        while names and not names[-1]:
            names.pop()
        if len(names) < 2 or "" in names or len(set(names)) < len(names):
            raise DataError(f"{file} names {len(names)} classes; put two or more different names there, one a line")
        return tuple(names)

    @cached_property
    def _pairs(self) -> dict[Stage, list[Pair]]:
        return {stage: list_pairs(folder) for stage, folder in stage_folders(self.path).items()}

    @cached_property
    def _median_sizes(self) -> Sizes:
        found = [picture_size(pair.image) for pair in sample_evenly(self._pairs["train"])]
        width, height = np.median(found, axis=0)
        return int(height), int(width)

    @cached_property
    def _sizes(self) -> Sizes:
        if self.height is not None and self.width is not None:
            return self.height, self.width
        height, width = self._median_sizes
        reduced = min(1.0, MAX_SIDE_PIXELS / min(height, width))
        rounded = [max(SIDE_STEP, SIDE_STEP * round(side * reduced / SIDE_STEP)) for side in (height, width)]
        return self.height or rounded[0], self.width or rounded[1]

    def prepare(self) -> Path:
        files = [path for pairs in self._pairs.values() for pair in pairs for path in pair]
        key = {
            "title": self.title,
            "identity": 3,
            "sizes": self._sizes,
            "values": self.values,
            "ignore": self.ignore,
            "names": self._names,
            "files": {str(path.relative_to(self.path)): path for path in files},
        }
        return cached_folder(self.cache_root, self.title, key, self._build)

    def _build(self, folder: Path) -> None:
        pairs = [(stage, pair) for stage, found in self._pairs.items() for pair in found]
        counts = np.zeros(MAX_CLASSES + 1, dtype=np.int64)
        pixels = open_memmap(folder / PIXELS, mode="w+", dtype=np.uint8, shape=(len(pairs), 4, *self._sizes))
        read = partial(read_pair, sizes=self._sizes, values=self.values, ignore=self.ignore)
        prepared = in_order(read, (pair for _, pair in pairs), self.processes)
        for i, (found, seen) in enumerate(paced(prepared, "images", len(pairs))):
            largest = int(np.flatnonzero(seen).max()) - 1
            if self._names and largest >= len(self._names):
                raise DataError(
                    f"{pairs[i][1].mask} holds the class {largest}, and {NAMES} names {len(self._names)} classes, 0 to "
                    f"{len(self._names) - 1}; name it there, or set data.ignore={largest} if it is no class"
                )
            pixels[i] = found
            counts += seen
        pixels.flush()
        present = np.flatnonzero(counts[1:])
        if len(present) < 2:
            held = f"the class {present[0]}" if len(present) else "no class"
            raise DataError(
                f"the masks in {self.path} hold {held} and ignored pixels (data.ignore={self.ignore}) only; two classes"
                " are needed: if they are values such as 0 and 255, set data.values=[0,255]"
            )
        np.save(folder / PARTS, np.array([STAGES.index(stage) for stage, _ in pairs]))
        places = (pair.image.relative_to(self.path).as_posix() for _, pair in pairs)
        Strings.write(folder, f"{IDENTITY}places", places)
        (folder / self.facts_file).write_text(
            json.dumps({"classes": int(present.max()) + 1, "names": self._names}), encoding="utf-8"
        )

    def make_splits(self) -> dict[Stage, Split]:
        stages = np.load(self.folder / PARTS)
        if "test" not in self._pairs:
            stages[stages == STAGES.index("train")] = -1  # `split_rows` divides these
        rows = split_rows(stages, self.held_out_shares(()), self.split_seed, self.own_name)
        pixels = np.load(self.folder / PIXELS, mmap_mode="r")
        places = Strings.open(self.folder, f"{IDENTITY}places")
        splits: dict[Stage, Split] = {stage: MaskSplit(pixels, places, rows=rows[stage]) for stage in STAGES}
        return splits | {"train": MaskSplit(pixels, places, self.pad, self.mirror, rows=rows["train"])}

    def encode_one(self, content: Content) -> Tensor:
        """A picture as the model takes it, (3, H, W)."""
        resized = resize_image(Image.fromarray(checked_picture(content)).convert("RGB"), self._sizes)
        return NORMALISE(torch.from_numpy(resized)[None])[0]

    def collate(self, encoded: Sequence[Any]) -> Batch:
        return Batch.unlabelled(torch.stack(list(encoded)))
