"""What a task may know of its data before any of it is read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DataSpec:
    """Sizes of a data set, known without reading its samples."""

    name: str  # as the summary shows it
    num_classes: int
    image_size: tuple[int, int] | None = None  # (height, width) in pixels
    channels: int = 0  # of an image
    ragged: bool = False  # batches may be padded
    needs_bias: bool = False  # the task passes a pairwise bias
