"""An SVM on the rasterised clouds of studies/sets: tuned on validation, then scored on the test clouds once.

usage: python studies/sets/svm_reference.py CLOUDS    CLOUDS as digit_clouds.py writes them; writes svm_reference.json

A cloud becomes a picture of 28 x 28 counts, blurred, because a point may lie half a pixel beside its ink. The file has
every trial, and which test clouds were right, packed as in results.jsonl.
"""

from __future__ import annotations

import json
import sys
from itertools import product
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
from run_experiment import packed
from scipy.ndimage import gaussian_filter
from sklearn.svm import SVC

PIXELS = 28
BLURS = (0.7, 1.0, 1.4)  # standard deviations in pixels
COSTS = (1.0, 3.0, 10.0, 30.0)  # C of the SVM
WIDTHS = (1.0, 2.0, 4.0, 8.0)  # gamma as a multiple of scikit-learn's `scale`
FILE = Path(__file__).with_name("svm_reference.json")


def read_split(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Counts (n, 28, 28) and digits (n,) of a split, in the order of the runs' ids: by class, then by file."""
    files = sorted(folder.glob("*/*.npy"))
    pictures = np.stack([raster_of(np.load(file)) for file in files])
    return pictures, np.array([int(file.parent.name) for file in files])


def raster_of(cloud: np.ndarray) -> np.ndarray:
    """How many points (n, 3) of a cloud lie in each pixel: (28, 28); x is a column and -y a row."""
    rows, columns = (np.clip(np.rint(values), 0, PIXELS - 1).astype(int) for values in (-cloud[:, 1], cloud[:, 0]))
    picture = np.zeros((PIXELS, PIXELS))
    np.add.at(picture, (rows, columns), 1)
    return picture


def blurred(pictures: np.ndarray, blur: float) -> np.ndarray:
    """The pictures (n, 28, 28) after a Gaussian filter, flattened to length 1: (n, 784)."""
    flat = gaussian_filter(pictures, (0, blur, blur)).reshape(len(pictures), -1)
    return flat / np.linalg.norm(flat, axis=1, keepdims=True)


def main(clouds: Path) -> None:
    splits = {split: read_split(clouds / split) for split in ("train", "val", "test")}
    digits = {split: targets for split, (_, targets) in splits.items()}
    trials, best, kept = [], -1.0, None
    for blur in BLURS:
        flat = {split: blurred(pictures, blur) for split, (pictures, _) in splits.items()}
        scale = 1 / (flat["train"].shape[1] * flat["train"].var())
        for cost, width in product(COSTS, WIDTHS):
            fitted = SVC(C=cost, gamma=width * scale, cache_size=500).fit(flat["train"], digits["train"])
            score = float(fitted.score(flat["val"], digits["val"]))
            trials.append({"blur": blur, "C": cost, "gamma": width, "val": score})
            if score > best:
                best, kept = score, (fitted, flat["test"], trials[-1])
    if kept is None:
        raise ValueError("no trial has a score")
    fitted, test, chosen = kept
    right = fitted.predict(test) == digits["test"]
    found = {"name": "raster + SVM", "chosen": chosen, "test": float(right.mean()), **packed(right), "trials": trials}
    FILE.write_text(json.dumps(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
