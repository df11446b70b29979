"""The simple model that a declared experiment is compared with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from experiment_reference import fit_raster_svm, fit_words, rasterise, write_pieces
from scipy.ndimage import gaussian_filter
from sklearn.svm import SVC
from support.plans import build_data
from support.runs import small_config


def test_the_pieces_of_a_text_are_those_that_a_model_sees(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    rows = [f"{'good' if i % 2 else 'bad'} film number {i},{i % 2}" for i in range(60)]
    table.write_text("\n".join(["text,label", *rows]))
    data = build_data(small_config("task=text_csv", f"data.file={table}", "data.max_len=3", f"paths.data={tmp_path}"))
    data.prepare_data()
    data.setup()
    texts = write_pieces(data, "train")
    inputs = data.splits["train"].batch(list(range(len(texts)))).inputs
    assert [text.split() for text in texts] == [[str(i) for i in row if i > 0] for row in inputs.tolist()]
    assert max(len(text.split()) for text in texts) == 3


def test_a_cloud_is_counted_pixel_by_pixel() -> None:
    cloud = np.array([[3.4, -5.0, 0.0], [2.6, -4.6, 0.0], [99.0, 0.0, 0.0]])  # x, -row; the last one is outside
    picture = rasterise(cloud).reshape(28, 28)
    assert (picture[5, 3], picture[0, 27], picture.sum()) == (2, 1, 3)


def test_clouds_are_learned_and_the_best_trial_is_scored() -> None:
    rng = np.random.default_rng(0)
    targets = {stage: np.arange(n) % 2 for stage, n in (("train", 60), ("val", 20), ("test", 20))}
    features = {stage: np.stack([_cloud_at(rng, 13 + label) for label in known]) for stage, known in targets.items()}
    trials, right = fit_raster_svm(features, targets)
    scores = [trial.val for trial in trials]
    assert len(trials) == 48 and scores == sorted(scores) and scores[0] < scores[-1]
    blur, cost, width = (trials[-1].options[name] for name in ("blur", "C", "gamma"))
    seen = {}
    for stage, pictures in features.items():
        flat = np.stack([gaussian_filter(one.reshape(28, 28), blur).ravel() for one in pictures])
        seen[stage] = flat / np.linalg.norm(flat, axis=1)[:, None]
    model = SVC(C=cost, gamma=width / (784 * seen["train"].var())).fit(seen["train"], targets["train"])
    assert model.score(seen["val"], targets["val"]) == scores[-1]
    np.testing.assert_array_equal(right, model.predict(seen["test"]) == targets["test"])
    assert 0 < right.mean() < 1


def _cloud_at(rng: np.random.Generator, row: int) -> np.ndarray:
    """The picture (784,) of a cloud around a row."""
    return rasterise(np.stack([rng.normal(14, 3, 30), -rng.normal(row, 2, 30), np.zeros(30)], axis=1))


def test_words_are_learned_and_every_test_text_is_scored() -> None:
    rng = np.random.default_rng(0)
    targets = {stage: np.arange(n) % 2 for stage, n in (("train", 80), ("val", 20), ("test", 30))}
    fill = {stage: rng.integers(10, 20, (len(known), 5)) for stage, known in targets.items()}
    words = {
        stage: [" ".join(map(str, [*fill[stage][i], 7 + label])) for i, label in enumerate(known)]
        for stage, known in targets.items()
    }
    features = {stage: np.array(texts, dtype=object) for stage, texts in words.items()}
    features["test"][3] = features["test"][3].replace("8", "7")  # a text with the word of the other class
    trials, right = fit_words(features, targets)
    assert [i for i, one in enumerate(right) if not one] == [3]
    assert len(trials) == 12 and trials[-1].val == max(trial.val for trial in trials) == 1.0
