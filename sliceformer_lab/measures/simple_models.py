"""Simple models that learn in seconds, next to which a trained encoder is judged. Nothing here imports torch."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sliceformer_lab.runs.processes import end_with_parent

Array = np.ndarray
Contents = Sequence[str] | Sequence[Array]
Goal = Literal["classes", "labels", "numbers", "pixels"]

MAX_KERNEL_PICTURES = 3000  # pictures up to which a kernel machine takes seconds
HOG_PIXELS = 32  # pixels of the side to which pictures are scaled for their gradients
CELLS_PER_AXIS = 8  # cells per axis of a cloud's histogram
FEW_WORDS = 3  # spaces per text, below which its characters tell more than its words
NUM_TREES = 100
PIXELS, PIXEL_TREES = 20_000, 20  # of all training pictures, and trees, with which a forest of pixels takes seconds
SURROUNDING_PIXELS = 5  # side in pixels of the surroundings of a pixel
MAX_LOGIT = 20.0  # of a logit: a forest's probabilities of 0 and 1 have infinite ones


@dataclass(frozen=True)
class SimpleModel:
    """A simple model for one kind of content. `features` maps training and other contents to matrices."""

    name: str
    features: Callable[[Contents, list[Contents]], list[Array]]
    estimator: Literal["logistic regression", "forest", "support vectors"]


def simple_models(kind: str, num_train: int) -> list[SimpleModel]:
    """The models for contents of a kind: text, smiles, picture, cloud or pixels; the last one is the strongest.

    Models of the kind pixels read pictures and predict the class of each pixel.
    """
    pictures: Literal["support vectors", "logistic regression"] = (
        "support vectors" if num_train <= MAX_KERNEL_PICTURES else "logistic regression"
    )
    known = {
        "text": [SimpleModel("TF-IDF + logistic regression", _tfidf, "logistic regression")],
        "smiles": [
            SimpleModel("Morgan fingerprints + forest", _each(_fingerprint), "forest"),
            SimpleModel("fingerprints, descriptors + forest", _each(_descriptors), "forest"),
        ],
        "picture": [SimpleModel(f"HOG + {pictures}", _each(_gradients), pictures)],
        "cloud": [SimpleModel("3-D histogram + forest", _each(_histogram), "forest")],
        "pixels": [SimpleModel("colour, position + forest", _each(_pixels), "forest")],
    }
    return known[kind]


def fit_and_predict(
    model: SimpleModel, train: Contents, targets: Array, others: Mapping[str, Contents], goal: Goal, num_classes: int
) -> dict[str, Array]:
    """The outputs of a model fitted to `train`, for each of the `others`.

    targets: classes (n,), labels or numbers (n, T) with NaN where unknown, or classes of pixels (n, H, W), negative
    where unknown. Outputs are logits (m, classes) of classes, logits (m, T) of labels, numbers (m, T), or the classes
    (m, H, W) of pixels.
    """
    if goal == "pixels":
        return _segment(train, targets, others)
    parts = model.features(train, list(others.values()))
    if goal == "classes":
        outputs = _classify(model.estimator, parts[0], targets, parts[1:], num_classes)
    else:
        columns = [_column(model.estimator, parts[0], column, parts[1:], goal) for column in targets.T]
        outputs = [np.stack(part, axis=1) for part in zip(*columns, strict=True)]
    return dict(zip(others, outputs, strict=True))


def _segment(train: Contents, targets: Array, others: Mapping[str, Contents]) -> dict[str, Array]:
    """The class of every pixel (m, H, W) by a forest of PIXELS random training pixels; pictures come one by one."""
    from sklearn.ensemble import RandomForestClassifier

    rng, each = np.random.default_rng(0), -(-PIXELS // len(train))
    rows, classes = [], []
    for picture, mask in zip(train, targets, strict=True):
        known = np.flatnonzero(mask.ravel() >= 0)
        chosen = rng.choice(known, min(each, len(known)), replace=False)
        rows.append(_pixels(np.asarray(picture))[chosen])
        classes.append(mask.ravel()[chosen])
    forest = RandomForestClassifier(PIXEL_TREES, min_samples_leaf=3, random_state=0, n_jobs=1)
    forest.fit(np.concatenate(rows), np.concatenate(classes))
    shape = targets.shape[1:]
    return {
        name: np.stack([forest.predict(_pixels(np.asarray(picture))).reshape(shape) for picture in part])
        for name, part in others.items()
    }


def _classify(estimator: str, train: Array, targets: Array, others: list[Array], num_classes: int) -> list[Array]:
    fitted = _estimator(estimator, classifies=True).fit(train, targets)
    outputs = []
    for part in others:
        logits = np.full((part.shape[0], num_classes), -2 * MAX_LOGIT)  # of classes without training examples
        logits[:, fitted.classes_.astype(int)] = _logits(fitted, part)
        outputs.append(logits)
    return outputs


def _column(estimator: str, train: Array, target: Array, others: list[Array], goal: Goal) -> list[Array]:
    """The outputs (m,) for one label or number; a constant where it has too few known values to learn from."""
    known = ~np.isnan(target)
    values = target[known]
    if len(values) < 2 or len(np.unique(values)) < 2:
        return [np.full(part.shape[0], values.mean() if len(values) else 0.0) for part in others]
    fitted = _estimator(estimator, classifies=goal == "labels").fit(train[known], values)
    if goal == "numbers":
        return [fitted.predict(part) for part in others]
    return [np.diff(_logits(fitted, part), axis=1)[:, 0] for part in others]


def _logits(fitted: object, part: Array) -> Array:
    """Logits (m, classes) of a fitted classifier of scikit-learn."""
    if hasattr(fitted, "predict_proba"):
        with np.errstate(divide="ignore"):
            logits: Array = np.clip(np.log(fitted.predict_proba(part)), -MAX_LOGIT, 0.0)
            return logits
    scores: Array = fitted.decision_function(part)  # type: ignore[attr-defined]
    return scores if scores.ndim == 2 else np.stack([-scores / 2, scores / 2], axis=1)


def _estimator(name: str, *, classifies: bool):  # type: ignore[no-untyped-def]  # noqa: ANN202  (scikit-learn has no types)
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MaxAbsScaler, StandardScaler
    from sklearn.svm import SVC

    if name == "forest":
        if classifies:
            return RandomForestClassifier(NUM_TREES, random_state=0, n_jobs=1)
        return RandomForestRegressor(NUM_TREES, max_features=1 / 3, random_state=0, n_jobs=1)  # a third, as Breiman's
    if name == "support vectors":
        return make_pipeline(StandardScaler(), SVC())
    return make_pipeline(MaxAbsScaler(), LogisticRegression(C=1.0, max_iter=100))


def _tfidf(train: Contents, others: list[Contents]) -> list[Array]:
    """Sparse matrices of words and pairs of words; of one to four characters where texts are single words or names."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    if np.mean([str(text).count(" ") for text in train]) < FEW_WORDS:
        vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 4), sublinear_tf=True, min_df=2)
    else:
        pattern = r"(?u)\b\w+\b"
        vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2, token_pattern=pattern)
    return [vectorizer.fit_transform(train), *(vectorizer.transform(part) for part in others)]


def _each(features: Callable[..., Array]) -> Callable[[Contents, list[Contents]], list[Array]]:
    """Features of every content by itself: a matrix (n, F) of each part."""

    def of_parts(train: Contents, others: list[Contents]) -> list[Array]:
        return [np.stack([features(content) for content in part]) for part in (train, *others)]

    return of_parts


def _fingerprint(smiles: str) -> Array:
    """Counts of a Morgan fingerprint (2048,) of radius 2."""
    from rdkit import Chem
    from rdkit.Chem import rdFingerprintGenerator

    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    return np.asarray(generator.GetCountFingerprintAsNumPy(Chem.MolFromSmiles(smiles)), dtype=np.float32)


def _descriptors(smiles: str) -> Array:
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
    return np.concatenate([_fingerprint(smiles), np.asarray(numbers, dtype=np.float32)])


def _gradients(picture: Array) -> Array:
    """Histograms of oriented gradients and grey pixels of a picture (H, W) or (H, W, 3) uint8, scaled to HOG_PIXELS."""
    from PIL import Image
    from skimage.feature import hog

    side = HOG_PIXELS
    grey = np.asarray(Image.fromarray(picture).convert("L").resize((side, side), Image.Resampling.BILINEAR)) / 255.0
    histograms = hog(grey, orientations=9, pixels_per_cell=(8, 8), cells_per_block=(2, 2))
    small = grey.reshape(8, side // 8, 8, side // 8).mean(axis=(1, 3))
    return np.concatenate([histograms, small.ravel()]).astype(np.float32)


def _pixels(picture: Array) -> Array:
    """Of each pixel of a picture (H, W, 3) its colour, the mean colour around it, and its place: (H * W, 8)."""
    from scipy.ndimage import uniform_filter

    colours = picture.astype(np.float32) / 255
    around = uniform_filter(colours, size=(SURROUNDING_PIXELS, SURROUNDING_PIXELS, 1), mode="nearest")
    place = np.stack(np.meshgrid(*(np.linspace(0, 1, side) for side in picture.shape[:2]), indexing="ij"), axis=2)
    return np.concatenate([colours, around, place.astype(np.float32)], axis=2).reshape(-1, 8)


def _histogram(cloud: Array) -> Array:
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
    name, kind, train, targets, others, goal, num_classes = pickle.load(sys.stdin.buffer)
    model = next(model for model in simple_models(kind, len(train)) if model.name == name)
    outputs = fit_and_predict(model, train, targets, others, goal, num_classes)
    sys.stdout.buffer.write(pickle.dumps(outputs))


if __name__ == "__main__":
    main()
