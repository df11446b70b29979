"""A forest that predicts the class of each pixel of a picture, as a reference for segmentation."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sliceformer_lab.measures.simple_models import Array, Contents, SimpleModel

NUM_PIXELS, NUM_TREES = 20_000, 20  # of all training pictures, and trees, with which it takes seconds
SURROUNDING_PIXELS = 5  # side in pixels of the surroundings of a pixel


class PixelForest(SimpleModel):
    """A forest of the colour, the surroundings and the place of random training pixels."""

    name = "colour, position + forest"

    def fit_and_predict(self, train: Contents, targets: Array, others: Mapping[str, Contents]) -> dict[str, Array]:
        """The class of each pixel (m, H, W); targets (n, H, W) are negative where unknown. Pictures come one by one."""
        from sklearn.ensemble import RandomForestClassifier

        rng, each = np.random.default_rng(0), -(-NUM_PIXELS // len(train))
        rows, classes = [], []
        for picture, mask in zip(train, targets, strict=True):
            known = np.flatnonzero(mask.ravel() >= 0)
            chosen = rng.choice(known, min(each, len(known)), replace=False)
            rows.append(_describe_pixels(np.asarray(picture))[chosen])
            classes.append(mask.ravel()[chosen])
        forest = RandomForestClassifier(NUM_TREES, min_samples_leaf=3, random_state=0, n_jobs=1)
        forest.fit(np.concatenate(rows), np.concatenate(classes))
        shape = targets.shape[1:]
        return {
            name: np.stack([forest.predict(_describe_pixels(np.asarray(picture))).reshape(shape) for picture in part])
            for name, part in others.items()
        }


def _describe_pixels(picture: Array) -> Array:
    """Of each pixel of a picture (H, W, 3) its colour, the mean colour around it, and its place: (H * W, 8)."""
    from scipy.ndimage import uniform_filter

    colours = picture.astype(np.float32) / 255
    around = uniform_filter(colours, size=(SURROUNDING_PIXELS, SURROUNDING_PIXELS, 1), mode="nearest")
    place = np.stack(np.meshgrid(*(np.linspace(0, 1, side) for side in picture.shape[:2]), indexing="ij"), axis=2)
    return np.concatenate([colours, around, place.astype(np.float32)], axis=2).reshape(-1, 8)
