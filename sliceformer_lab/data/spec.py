"""What a task knows about its data before any is read, and what a run decides about loading them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from sliceformer_lab.errors import DataError
from sliceformer_lab.order import TokenOrder

Content = str | np.ndarray
ContentKind = Literal["text", "smiles", "picture", "cloud", "series"]


@dataclass(frozen=True)
class Example:
    """One example of a data set as a person would recognise it."""

    place: str  # its file, or file and line: "ag.csv, line 13", "cats/12.jpg", "test picture 12"
    # text, SMILES, picture (H, W, 3) or (H, W) uint8, cloud (P, 3 or 6) or series (L, C) float; None: none kept
    content: Content | None


@dataclass(frozen=True)
class NewInput:
    """An input to predict, or the error in its place if it cannot be read."""

    place: str  # "new.csv, line 7", or a file
    content: Content | DataError


@dataclass(frozen=True, kw_only=True)
class LoadPlan:
    """What a run decides about loading. What a user decides are the options of the data module."""

    seed: int = 0  # of the order and the augmentation of training examples
    accumulate: int = 1  # batches per optimizer step
    steps_between_scores: int | None = None  # None: validation after each pass over the training examples
    score_test_each_epoch: bool = False  # also score the test split at each validation, for test curves
    pairwise: bool = True  # batches of graphs hold distances and paths, which only a pairwise bias reads
    classes: tuple[str, ...] = ()  # of a trained model that is scored, in the order of its outputs; (): the data's own
    targets: tuple[str, ...] = ()  # the same for numbers or labels
    run_folder: Path | None = None  # of a trained model, whose tokenizer encodes new texts; None: the one in the cache


@dataclass(frozen=True)
class Choice:
    """The value of an option that the configuration leaves open, chosen from the data."""

    option: str  # its place in the configuration, such as data.batch_size
    value: int | float | str | bool
    reason: str

    def __str__(self) -> str:
        return f"{self.option}={self.value} ({self.reason})"


@dataclass(frozen=True, kw_only=True)
class DataSpec:
    """Sizes of a data set, known without reading its samples."""

    name: str  # as the summary shows it
    targets: str = "class"  # also labels, numbers, pixels, next tokens, answers, parts: a task takes its own
    num_classes: int = 0  # of a sample, or of each token or pixel
    num_targets: int = 0  # numbers or labels to predict for a sample, where there are no classes
    image_size: tuple[int, int] | None = None  # (height, width) in pixels
    token_order: TokenOrder = "raster"  # of the patches of an image in the sequence
    channels: int = 0  # of an image, or features of a token that is not an id
    max_len: int | None = None  # largest number of tokens of a sample, without CLS and graph token
    patch_len: int = 0  # time steps of a series in a token, with channels / patch_len numbers each
    vocab_size: int = 0  # token ids 0..vocab_size-1, 0 is padding if ragged; 0 where tokens are numbers
    grey_levels: bool = False  # tokens are pixels, and an id is the pixel's grey level
    parts: tuple[tuple[int, int], ...] = ()  # first part and last part + 1 of each category of shapes
    unordered: bool = False  # tokens come in no meaningful order: points as they were sampled
    ragged: bool = False  # samples differ in length, so batches may be padded
    has_edges: bool = False  # samples are graphs
    node_values: tuple[int, ...] = ()  # number of values of each node feature
    edge_channels: int = 0  # features of an edge
    edge_values: tuple[int, ...] = ()  # number of values of each edge feature
    context_channels: int = 0  # features of the whole graph
    position_channels: int = 0  # numbers that encode a node's place in its graph
    num_hops: int = 0  # a batch holds the first num_hops edges of each shortest path
    needs_bias: bool = False  # batches hold the distances and paths that a pairwise bias needs
    chance: float | None = None  # of answers: the best accuracy from the asked token and its position
    bag_level: float | None = None  # and from the set of symbols without their arrangement, where that is defined

    @classmethod
    def from_json(cls, sizes: Mapping[str, object]) -> DataSpec:
        """The sizes that `asdict` and JSON made plain: JSON has lists where the sizes have tuples.

        Raises TypeError for names of no size.
        """

        def fixed(value: object) -> object:
            return tuple(map(fixed, value)) if isinstance(value, list) else value

        return cls(**{name: fixed(value) for name, value in sizes.items()})  # type: ignore[arg-type]
