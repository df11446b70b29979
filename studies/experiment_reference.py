"""The strongest simple model we can write for an experiment: chosen on validation, then scored on the test data once.

usage: python studies/experiment_reference.py studies/qm9_gap data.root=QM9
or:    studies/fashion_mnist data.root=FASHION, studies/imdb data.root=ACLIMDB, studies/sets data.root=CLOUDS

It sees the rows of the experiment's runs, which `experiment.yaml` names. It writes `FOLDER/NAME_reference.json`: every
trial, the digests of the data and the scores of single test examples, packed as in results.jsonl.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from rdkit import Chem
from rdkit.Chem import Descriptors, rdFingerprintGenerator
from run_experiment import packed, read_experiments
from scipy.ndimage import gaussian_filter
from skimage.feature import hog
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from sliceformer_lab.config.checked import check_config
from sliceformer_lab.config.explain import job_config
from sliceformer_lab.data.base import DataModule
from sliceformer_lab.data.splits import STAGES, Stage
from sliceformer_lab.training.build import build_data

Array = np.ndarray
MAX_DESCRIPTOR = 1e6  # some descriptors of RDKit overflow
MIN_SHARE = 0.02  # of the training molecules that have another value than most; a rarer column is left out
PIXELS = 28  # in a row of a digit
TUNING_PICTURES = 10_000  # of the training pictures, which choose C and gamma; the chosen one sees all of them


@dataclass(frozen=True)
class Trial:
    """One setting of the model and its score on validation."""

    options: Mapping[str, float]
    val: float


@dataclass(frozen=True)
class Reference:
    """A simple model of an experiment: how it is called and how it learns.

    `features` makes (n, F), or n texts, of the examples of a split. `fit` maps these and the targets (n,) of each split
    to its trials, best last, and the scores (m,) of the test examples.
    """

    name: str
    features: Callable[[DataModule, Stage], Array]
    fit: Callable[[Mapping[str, Array], Mapping[str, Array]], tuple[list[Trial], Array]]


def features_by(describe: Callable[[object], Array]) -> Callable[[DataModule, Stage], Array]:
    """Features (n, F) of a split's examples, each by `describe` from what a person sees of it."""

    def features(data: DataModule, stage: Stage) -> Array:
        return np.stack([describe(one.content) for one in data.examples(stage, range(len(data.splits[stage])))])

    return features


def describe_molecule(smiles: object) -> Array:
    """Counts of Morgan's circles, atom pairs and torsions, and RDKit's descriptors: (F,) float32."""
    molecule = Chem.MolFromSmiles(str(smiles))
    generators = (
        rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=1024),
        rdFingerprintGenerator.GetAtomPairGenerator(fpSize=512),
        rdFingerprintGenerator.GetTopologicalTorsionGenerator(fpSize=512),
    )
    counts = [one.GetCountFingerprintAsNumPy(molecule) for one in generators]
    numbers = np.array([function(molecule) for _, function in Descriptors.descList], dtype=np.float64)
    numbers = np.clip(np.nan_to_num(numbers), -MAX_DESCRIPTOR, MAX_DESCRIPTOR)
    return np.concatenate([*counts, numbers]).astype(np.float32)


def fit_boosting(features: Mapping[str, Array], targets: Mapping[str, Array]) -> tuple[list[Trial], Array]:
    """Absolute errors (m,) of gradient boosting; its leaves are chosen on validation.

    Columns that nearly all molecules share are left out: a tree takes a third of the time.
    """
    varies = np.mean(features["train"] != np.median(features["train"], axis=0), axis=0) > MIN_SHARE
    kept = {stage: values[:, varies] for stage, values in features.items()}
    found: list[tuple[Trial, HistGradientBoostingRegressor]] = []
    for leaves, rate in ((63, 0.1), (255, 0.1)):
        model = HistGradientBoostingRegressor(
            loss="absolute_error", max_iter=1000, learning_rate=rate, max_leaf_nodes=leaves, random_state=0,
            early_stopping=True, validation_fraction=0.05, n_iter_no_change=20,
        )  # fmt: skip
        model.fit(kept["train"], targets["train"])
        error = float(np.abs(model.predict(kept["val"]) - targets["val"]).mean())
        found.append((Trial({"leaves": leaves, "rate": rate, "trees": model.n_iter_}, error), model))
    found.sort(key=lambda one: -one[0].val)
    return [trial for trial, _ in found], np.abs(found[-1][1].predict(kept["test"]) - targets["test"])


def describe_picture(picture: object) -> Array:
    """Histograms of oriented gradients in cells of 4 and 7 pixels, and the pixels: (F,) float32."""
    grey = np.asarray(picture, dtype=np.float32) / 255
    fine = hog(grey, orientations=9, pixels_per_cell=(4, 4), cells_per_block=(2, 2))
    coarse = hog(grey, orientations=9, pixels_per_cell=(7, 7), cells_per_block=(2, 2))
    return np.concatenate([fine, coarse, grey.ravel()]).astype(np.float32)


def fit_svm(features: Mapping[str, Array], targets: Mapping[str, Array]) -> tuple[list[Trial], Array]:
    """Which test pictures (m,) an SVM names rightly; C and gamma are chosen on validation with some of the pictures."""
    mean, width = features["train"].mean(axis=0), features["train"].std(axis=0) + 1e-3
    scaled = {stage: (values - mean) / width for stage, values in features.items()}
    trials = []
    for cost in (3.0, 10.0):
        for gamma in (0.25, 0.5, 1.0):
            model = SVC(C=cost, gamma=gamma / len(mean), cache_size=1000)
            model.fit(scaled["train"][:TUNING_PICTURES], targets["train"][:TUNING_PICTURES])
            trials.append(Trial({"C": cost, "gamma": gamma}, float(model.score(scaled["val"], targets["val"]))))
    trials.sort(key=lambda trial: trial.val)
    chosen = trials[-1].options
    model = SVC(C=chosen["C"], gamma=chosen["gamma"] / len(mean), cache_size=2000)
    model.fit(scaled["train"], targets["train"])
    return trials, model.predict(scaled["test"]) == targets["test"]


def rasterise(cloud: object) -> Array:
    """How many points (n, 3) of a digit's cloud lie in each pixel: (784,); x is a column and -y a row."""
    points = np.asarray(cloud)
    rows, columns = (np.clip(np.rint(values), 0, PIXELS - 1).astype(int) for values in (-points[:, 1], points[:, 0]))
    picture = np.zeros((PIXELS, PIXELS))
    np.add.at(picture, (rows, columns), 1)
    return picture.ravel()


def fit_raster_svm(features: Mapping[str, Array], targets: Mapping[str, Array]) -> tuple[list[Trial], Array]:
    """Which test clouds (m,) an SVM on blurred pictures names rightly; blur, C and gamma are chosen on validation.

    They are blurred because a point may lie half a pixel beside its ink.
    """
    found = []
    for blur in (0.7, 1.0, 1.4):  # standard deviations in pixels
        seen = {stage: _blur(values, blur) for stage, values in features.items()}
        scale = 1 / (seen["train"].shape[1] * seen["train"].var())
        for cost, width in product((1.0, 3.0, 10.0, 30.0), (1.0, 2.0, 4.0, 8.0)):
            model = SVC(C=cost, gamma=width * scale, cache_size=500).fit(seen["train"], targets["train"])
            trial = Trial({"blur": blur, "C": cost, "gamma": width}, float(model.score(seen["val"], targets["val"])))
            found.append((trial, model, seen["test"]))
    found.reverse()
    found.sort(key=lambda one: one[0].val)  # of equal ones the first comes last
    _, model, test = found[-1]
    return [trial for trial, _, _ in found], model.predict(test) == targets["test"]


def _blur(pictures: Array, blur: float) -> Array:
    """The pictures (n, 784) after a Gaussian filter, each with length 1."""
    flat = gaussian_filter(pictures.reshape(-1, PIXELS, PIXELS), (0, blur, blur)).reshape(len(pictures), -1)
    unit: Array = flat / np.linalg.norm(flat, axis=1, keepdims=True)
    return unit


def write_pieces(data: DataModule, stage: Stage) -> Array:
    """The word pieces that a model sees of each text of a split, as numbers in a text: (n,)."""
    rows = list(range(len(data.splits[stage])))
    parts = [data.splits[stage].batch(part.tolist()).inputs for part in np.array_split(rows, 1 + len(rows) // 500)]
    return np.array([" ".join(map(str, text[text > 0].tolist())) for part in parts for text in part], dtype=object)


def fit_words(features: Mapping[str, Array], targets: Mapping[str, Array]) -> tuple[list[Trial], Array]:
    """Which test texts (m,) a logistic regression on TF-IDF names rightly; n-grams and C are chosen on validation."""
    found = []
    for longest in (1, 2, 3):
        vectorizer = TfidfVectorizer(ngram_range=(1, longest), sublinear_tf=True, min_df=2, token_pattern=r"\d+")
        seen = {"train": vectorizer.fit_transform(features["train"])}
        seen |= {stage: vectorizer.transform(features[stage]) for stage in ("val", "test")}
        for cost in (1.0, 3.0, 10.0, 30.0):
            model = LogisticRegression(C=cost, max_iter=1000).fit(seen["train"], targets["train"])
            trial = Trial({"longest": longest, "C": cost}, float(model.score(seen["val"], targets["val"])))
            found.append((trial, model.predict(seen["test"]) == targets["test"]))
    found.sort(key=lambda one: one[0].val)
    return [trial for trial, _ in found], found[-1][1]


REFERENCES = {
    "sets": Reference("raster + SVM", features_by(rasterise), fit_raster_svm),
    "qm9_gap": Reference("fingerprints, descriptors + boosting", features_by(describe_molecule), fit_boosting),
    "fashion_mnist": Reference("HOG, pixels + SVM", features_by(describe_picture), fit_svm),
    "imdb": Reference("TF-IDF of the same word pieces + regression", write_pieces, fit_words),
}


def main(folder: Path, words: list[str]) -> None:
    experiment, reference = read_experiments(folder)[0], REFERENCES[folder.name]
    data = build_data(check_config(job_config([*experiment.command, *words])))
    data.setup()
    features: dict[str, Array] = {}
    targets: dict[str, Array] = {}
    for stage in STAGES:
        features[stage] = reference.features(data, stage)
        targets[stage] = data.splits[stage].targets_at(list(range(len(features[stage])))).numpy().squeeze()
    trials, scores = reference.fit(features, targets)
    chosen = {"chosen": dict(trials[-1].options), "val": trials[-1].val, "test": float(scores.mean())}
    found = {
        "name": reference.name, **chosen, "digests": data.digests(), **packed(scores),
        "trials": [{**trial.options, "val": trial.val} for trial in trials],
    }  # fmt: skip
    file = folder / f"{reference.name.rpartition(' ')[2].lower()}_reference.json"
    file.write_text(json.dumps(found) + "\n", encoding="utf-8")
    print(f"{file}: {chosen}")  # noqa: T201


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2:])
