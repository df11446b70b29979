"""Decoded images in memory, shared by the processes that load batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from PIL import Image

from sliceformer_lab.data.parallel import paced
from sliceformer_lab.runs.processes import num_cores


class ImageMemory:
    """RGB images by their position in a set, one after the other in one tensor.

    Worker processes share it: a forked one has the pages of its parent, a spawned one gets torch's shared memory.
    """

    def __init__(self) -> None:
        self.pixels = torch.empty(0, dtype=torch.uint8)
        self.places: dict[int, tuple[int, int, int]] = {}  # position -> first byte, height, width

    def image(self, position: int) -> Image.Image | None:
        """The image at a position; None if it is not here."""
        if (place := self.places.get(position)) is None:
            return None
        first, height, width = place
        return Image.fromarray(self.pixels[first : first + 3 * height * width].view(height, width, 3).numpy())

    def fill(self, positions: Sequence[int], decode: Callable[[int], Image.Image], limit: int) -> int:
        """Decode the images at `positions` on all cores, until `limit` bytes are full; returns the bytes in use."""
        used, arrays = 0, []
        decoded = paced(_decode_images(positions, decode), "images decoded", len(positions))
        for position, pixels in zip(positions, decoded, strict=False):
            if used + pixels.nbytes > limit:
                break
            self.places[position] = (used, *pixels.shape[:2])
            used += pixels.nbytes
            arrays.append(pixels.ravel())
        self.pixels = torch.from_numpy(np.concatenate(arrays)) if arrays else self.pixels
        return used


def _decode_images(positions: Sequence[int], decode: Callable[[int], Image.Image]) -> Iterable[np.ndarray]:
    with ThreadPoolExecutor(num_cores()) as pool:  # PIL decodes without holding Python's lock
        for first in range(0, len(positions), 256):  # `map` would decode all images at once
            yield from map(np.asarray, pool.map(decode, positions[first : first + 256]))
