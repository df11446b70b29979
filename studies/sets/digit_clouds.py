"""MNIST digits as point clouds in class folders, for the experiment of studies/sets/README.md.

usage: python studies/sets/digit_clouds.py MNIST_FOLDER OUT    MNIST_FOLDER as torchvision writes it

A cloud has 96 points of ink: pixels drawn with their grey level as weight, each moved by up to half a pixel. It is a
function of the picture's number alone, so everyone gets the same files.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from torchvision.datasets import MNIST

NUM_POINTS = 96
SPLITS = {"train": (True, 0, 4000), "val": (True, 4000, 5000), "test": (False, 0, 4000)}  # pictures of MNIST's order


def cloud_of(picture: np.ndarray, seed: tuple[int, int]) -> np.ndarray:
    """The points of a picture (28, 28), as x, y in pixels and z = 0: (96, 3) float32."""
    rng = np.random.default_rng(seed)
    ink = picture.ravel().astype(np.float64)
    pixels = rng.choice(ink.size, NUM_POINTS, replace=bool(np.count_nonzero(ink) < NUM_POINTS), p=ink / ink.sum())
    rows, columns = np.divmod(pixels, picture.shape[1])
    points = np.stack([columns, -rows, np.zeros_like(rows)], axis=1).astype(np.float32)
    points[:, :2] += rng.uniform(-0.5, 0.5, (NUM_POINTS, 2)).astype(np.float32)
    return points


def write_clouds(mnist: str, out: Path) -> None:
    """Writes OUT/SPLIT/DIGIT/NUMBER.npy for every cloud of the three splits."""
    for split, (train, first, last) in SPLITS.items():
        pictures = MNIST(mnist, train=train)
        for number in range(first, last):
            folder = out / split / str(int(pictures.targets[number]))
            folder.mkdir(parents=True, exist_ok=True)
            np.save(folder / f"{number:05d}.npy", cloud_of(pictures.data[number].numpy(), (int(train), number)))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    write_clouds(sys.argv[1], Path(sys.argv[2]))
