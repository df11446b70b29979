"""Simple models that learn in seconds, next to which a trained encoder is judged. Nothing here imports torch."""

from __future__ import annotations

import math
import pickle
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from sliceformer_lab.measures.molecule_features import fingerprint
from sliceformer_lab.measures.series_features import random_convolutions, spectra, warped_distances
from sliceformer_lab.runs.processes import end_with_parent

FINGERPRINT_SIZE = 2048  # counts of a molecule
Array = np.ndarray
Contents = Sequence[str] | Sequence[Array]

MAX_KERNEL_PICTURES = 3000  # pictures up to which a kernel machine takes seconds
HOG_PIXELS = 32  # pixels of the side to which pictures are scaled for their gradients
CELLS_PER_AXIS = 8  # cells per axis of a cloud's histogram
MIN_WORD_SPACES = 3  # spaces per text, below which its characters tell more than its words
NUM_TREES = 100
MAX_FORESTS = 4  # of labels; one forest learns more labels together, in a fraction of the time
RIDGE_PENALTIES = tuple(10.0**power for power in range(-3, 4))
RIDGE_PENALTY = 10.0  # of features scaled to at most 1; with TF-IDF, 1 fits the training texts too closely
MAX_LOGIT = 20.0  # of a logit: a forest's probabilities of 0 and 1 have infinite ones


Estimator = Literal[
    "logistic regression", "ridge", "forest", "support vectors", "cross-validated ridge", "nearest neighbour"
]


class SimpleModel(ABC):
    """A model that learns in seconds. A process of its own fits it, so it can be pickled."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What it reads, and the estimator."""

    @abstractmethod
    def fit_and_predict(self, train: Contents, targets: Array, others: Mapping[str, Contents]) -> dict[str, Array]:
        """Fits `train` and its targets (n, ...); returns the outputs (m, ...) for each of the `others`."""


@dataclass(frozen=True)
class Features:
    """What a simple model reads of contents, with the estimator that suits it.

    `matrices` maps training and other contents to a matrix (n, F) each.
    """

    reads: str
    matrices: Callable[[Any, list[Any]], list[Array]]  # of contents of one kind
    estimator: Estimator


def classifiers_of(contents: str | None, num_train: int) -> list[Features]:
    """The features of text, smiles, picture, cloud or series to tell classes by; the last ones are the strongest."""
    of_pictures: Estimator = "support vectors" if num_train <= MAX_KERNEL_PICTURES else "logistic regression"
    return _features_of(contents, "logistic regression", [of_pictures])


def regressors_of(contents: str | None) -> list[Features]:
    """The same to learn numbers by."""
    return _features_of(contents, "ridge", ["ridge", "forest"])


def _features_of(contents: str | None, of_texts: Estimator, of_pictures: Sequence[Estimator]) -> list[Features]:
    return {
        "text": [Features("TF-IDF", _weigh_words, of_texts)],
        "smiles": [
            Features(
                "Morgan fingerprints", partial(_describe_each, partial(fingerprint, size=FINGERPRINT_SIZE)), "forest"
            ),
            Features("fingerprints, descriptors", partial(_describe_each, _describe_molecule), "forest"),
        ],
        "picture": [Features("HOG", partial(_describe_each, _describe_picture), each) for each in of_pictures],
        "cloud": [Features("3-D histogram", partial(_describe_each, _describe_cloud), "forest")],
        "series": [
            Features("spectra", spectra, "cross-validated ridge"),
            Features("time warping", warped_distances, "nearest neighbour"),
            Features("random convolutions", random_convolutions, "cross-validated ridge"),
        ],
    }.get(contents or "", [])


@dataclass(frozen=True)
class FeatureModel(SimpleModel):
    """An estimator of scikit-learn on the features of contents."""

    features: Features

    @property
    def name(self) -> str:
        """What it reads, and the estimator."""
        return f"{self.features.reads} + {self.features.estimator}"


@dataclass(frozen=True)
class ClassModel(FeatureModel):
    """Predicts one class: targets (n,), outputs logits (m, num_classes)."""

    num_classes: int

    def fit_and_predict(self, train: Contents, targets: Array, others: Mapping[str, Contents]) -> dict[str, Array]:
        """Logits (m, num_classes), the lowest for classes without training examples."""
        first, *parts = self.features.matrices(train, list(others.values()))
        fitted = _build_estimator(self.features.estimator, classifies=True).fit(first, targets)
        outputs = {}
        for name, part in zip(others, parts, strict=True):
            outputs[name] = np.full((part.shape[0], self.num_classes), -2 * MAX_LOGIT)
            outputs[name][:, fitted.classes_.astype(int)] = _predict_logits(fitted, part)[0]
        return outputs


@dataclass(frozen=True)
class TargetModel(FeatureModel):
    """Predicts labels or numbers: targets (n, T) with NaN where unknown, outputs logits or numbers (m, T)."""

    has_labels: bool

    def fit_and_predict(self, train: Contents, targets: Array, others: Mapping[str, Contents]) -> dict[str, Array]:
        """Logits of labels or numbers (m, T), from a model for each target, or one forest for many known labels."""
        first, *parts = self.features.matrices(train, list(others.values()))
        if self.features.estimator == "forest" and self.has_labels and _are_many_and_known(targets):
            fitted = _build_estimator("forest", classifies=True).fit(first, targets)
            logits = [np.hstack([np.diff(each, axis=1) for each in _predict_logits(fitted, part)]) for part in parts]
            return dict(zip(others, logits, strict=True))
        columns = [
            _predict_column(self.features.estimator, first, column, parts, has_labels=self.has_labels)
            for column in targets.T
        ]
        outputs = [np.stack(part, axis=1) for part in zip(*columns, strict=True)]
        return dict(zip(others, outputs, strict=True))


def _are_many_and_known(labels: Array) -> bool:
    """Whether a forest can learn these labels (n, T) together: all are known, and none is always true or false."""
    is_known = not np.isnan(labels).any() and bool((labels != labels[:1]).any(axis=0).all())
    return is_known and labels.shape[1] > MAX_FORESTS


def _predict_column(
    estimator: str, train: Array, target: Array, others: list[Array], *, has_labels: bool
) -> list[Array]:
    """The outputs (m,) for one label or number; a constant where it has too few known values to learn from."""
    known = ~np.isnan(target)
    values = target[known]
    if len(values) < 2 or len(np.unique(values)) < 2:
        return [np.full(part.shape[0], values.mean() if len(values) else 0.0) for part in others]
    # a tree splits no values whose variance is below 2e-16; a power of two changes no digit
    scale = 1.0 if has_labels else 2.0 ** round(math.log2(values.std(dtype=np.float64)))
    fitted = _build_estimator(estimator, classifies=has_labels).fit(train[known], values / scale)
    if not has_labels:
        return [scale * fitted.predict(part) for part in others]
    return [np.diff(_predict_logits(fitted, part)[0], axis=1)[:, 0] for part in others]


def classify_embeddings(train: Array, labels: Array, others: Array) -> Array:
    """The classes (m,) of embeddings of length 1 (m, C), by a logistic regression on others (n, C) with labels (n,)."""
    from sklearn.linear_model import LogisticRegression

    classes: Array = LogisticRegression(C=10, max_iter=500).fit(train, labels).predict(others)
    return classes


def _predict_logits(fitted: object, part: Array) -> list[Array]:
    """Logits (m, classes) of a fitted classifier of scikit-learn, for each target that it learned."""
    if hasattr(fitted, "predict_proba"):
        found = fitted.predict_proba(part)
        with np.errstate(divide="ignore"):
            return [np.clip(np.log(each), -MAX_LOGIT, 0.0) for each in (found if isinstance(found, list) else [found])]
    scores: Array = fitted.decision_function(part)  # type: ignore[attr-defined]
    return [scores if scores.ndim == 2 else np.stack([-scores / 2, scores / 2], axis=1)]


def _build_estimator(name: str, *, classifies: bool):  # type: ignore[no-untyped-def]  # noqa: ANN202  (scikit-learn has no types)
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
    from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifierCV, RidgeCV
    from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MaxAbsScaler, StandardScaler
    from sklearn.svm import SVC

    if name == "cross-validated ridge":
        ridge = RidgeClassifierCV(RIDGE_PENALTIES) if classifies else RidgeCV(RIDGE_PENALTIES)
        return make_pipeline(StandardScaler(), ridge)
    if name == "nearest neighbour":
        return (KNeighborsClassifier if classifies else KNeighborsRegressor)(1, metric="precomputed")
    if name == "forest":
        if classifies:
            return RandomForestClassifier(NUM_TREES, random_state=0, n_jobs=1)
        return RandomForestRegressor(NUM_TREES, max_features=1 / 3, random_state=0, n_jobs=1)  # a third, as Breiman's
    if name == "ridge":
        return make_pipeline(MaxAbsScaler(), Ridge(alpha=RIDGE_PENALTY))
    if name == "support vectors":
        return make_pipeline(StandardScaler(), SVC())
    return make_pipeline(MaxAbsScaler(), LogisticRegression(C=1.0, max_iter=100))


def _weigh_words(train: Contents, others: list[Contents]) -> list[Array]:
    """Sparse matrices of words and pairs of words; of one to four characters where texts are single words or names."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    if np.mean([str(text).count(" ") for text in train]) < MIN_WORD_SPACES:
        vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 4), sublinear_tf=True, min_df=2)
    else:
        pattern = r"(?u)\b\w+\b"
        vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2, token_pattern=pattern)
    return [vectorizer.fit_transform(train), *(vectorizer.transform(part) for part in others)]


def _describe_each(features: Callable[..., Array], train: Contents, others: list[Contents]) -> list[Array]:
    """Features of every content by itself: a matrix (n, F) of each part."""
    return [np.stack([features(content) for content in part]) for part in (train, *others)]


def _describe_molecule(smiles: str) -> Array:
    """The fingerprint and eight descriptors (2056,): logP, mass, polar surface, donors, acceptors, bonds, rings."""
    from rdkit import Chem
    from rdkit.Chem import Crippen, Descriptors, rdMolDescriptors

    molecule = Chem.MolFromSmiles(smiles)
    numbers = [
        Crippen.MolLogP(molecule),  # type: ignore[attr-defined]
        Descriptors.MolWt(molecule),  # type: ignore[attr-defined]
        rdMolDescriptors.CalcTPSA(molecule),
        rdMolDescriptors.CalcNumHBD(molecule),
        rdMolDescriptors.CalcNumHBA(molecule),
        rdMolDescriptors.CalcNumRotatableBonds(molecule),
        rdMolDescriptors.CalcNumRings(molecule),
        rdMolDescriptors.CalcNumAromaticRings(molecule),
    ]
    return np.concatenate([fingerprint(smiles, FINGERPRINT_SIZE), np.asarray(numbers, dtype=np.float32)])


def _describe_picture(picture: Array) -> Array:
    """Histograms of oriented gradients and grey pixels of a picture (H, W) or (H, W, 3) uint8, scaled to HOG_PIXELS."""
    from PIL import Image
    from skimage.feature import hog

    side = HOG_PIXELS
    grey = np.asarray(Image.fromarray(picture).convert("L").resize((side, side), Image.Resampling.BILINEAR)) / 255.0
    histograms = hog(grey, orientations=9, pixels_per_cell=(8, 8), cells_per_block=(2, 2))
    small = grey.reshape(8, side // 8, 8, side // 8).mean(axis=(1, 3))
    return np.concatenate([histograms, small.ravel()]).astype(np.float32)


def _describe_cloud(cloud: Array) -> Array:
    """Share of the points (P, 3 or more) in each of CELLS_PER_AXIS**3 cells of their bounding cube, and its extents."""
    points = cloud[:, :3]
    low, extents = points.min(axis=0), np.ptp(points, axis=0)
    cells = np.clip(
        ((points - low) / max(float(extents.max()), 1e-12) * CELLS_PER_AXIS).astype(int), 0, CELLS_PER_AXIS - 1
    )
    counts = np.zeros((CELLS_PER_AXIS, CELLS_PER_AXIS, CELLS_PER_AXIS), dtype=np.float32)
    np.add.at(counts, tuple(cells.T), 1.0 / len(points))
    return np.concatenate([counts.ravel(), extents.astype(np.float32)])


def main() -> None:
    """Reads a pickled job from standard input and writes the outputs to standard output; its parent limits the time."""
    end_with_parent()
    model, train, targets, others = pickle.load(sys.stdin.buffer)
    sys.stdout.buffer.write(pickle.dumps(model.fit_and_predict(train, targets, others)))


if __name__ == "__main__":
    main()
