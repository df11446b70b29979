"""Pathfinder's images: an independent tracer finds their labels, and simple statistics do not."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from support.pathfinder_tracer import find_markers, trace

from sliceformer_lab.data.sequences.snake_board import Difficulty, SnakeOptions
from sliceformer_lab.data.sequences.snakes import Drawing, Snakes

PUBLISHED = [  # size, difficulty, paddles of a contour, distractors, paddles of one: 14 and 4, 20 // 4 and 35 // 4, ...
    (32, "easy", 6, 10, 2),
    (32, "intermediate", 9, 6, 3),
    (32, "hard", 14, 5, 4),
    (128, "easy", 6, 17, 2),
    (128, "intermediate", 9, 11, 3),
    (128, "hard", 14, 8, 4),
]
SIZES = [(size, difficulty) for size, difficulty, *_ in PUBLISHED]
TRACED: list[tuple[int, Difficulty]] = [(32, "easy"), (32, "hard"), (128, "intermediate")]  # each size, all lengths


@cache
def drawings(size: Any, difficulty: Difficulty) -> list[Drawing]:
    snakes = Snakes(SnakeOptions.published(size, difficulty))
    return [snakes.draw(3, index) for index in range(30 if size == 32 else 6)]


@cache
def many(matched: bool = True) -> list[Drawing]:
    """Easy pictures, whose snakes are as far from end to end as they are long."""
    snakes = Snakes(SnakeOptions.published(32, "easy"))
    if not matched:
        snakes._agree = lambda marks, others: np.ones((len(marks), len(others)), bool)  # type: ignore[method-assign]
    return [snakes.draw(0, index) for index in range(1600)]


def labels_of(pictures: list[Drawing]) -> np.ndarray:
    return np.array([drawing.label for drawing in pictures])


def markers_of(drawing: Drawing) -> np.ndarray:
    return np.array([drawing.mark.first, drawing.mark.last])


def distances(pictures: list[Drawing]) -> np.ndarray:
    return np.array([drawing.mark.distance for drawing in pictures])


def paddles_of(drawing: Drawing) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Centres (P, 2), orientations (P,) and snakes (P,) of the paddles."""
    links = [(link, number) for number, snake in enumerate(drawing.mark.scene.snakes) for link in snake]
    centres = np.array([drawing.board.centre(link) for link, _ in links], np.float32)
    orientations = np.array([drawing.board.angles[link.step] for link, _ in links], np.float32)
    return centres, orientations, np.array([number for _, number in links])


@pytest.mark.parametrize(("size", "difficulty", "contour", "number", "length"), PUBLISHED)
def test_counts_are_the_published_ones(size: Any, difficulty: Any, contour: int, number: int, length: int) -> None:
    options = SnakeOptions.published(size, difficulty)
    assert (options.contour_length, options.num_distractors, options.distractor_length) == (contour, number, length)


@pytest.mark.parametrize(("size", "difficulty"), TRACED)
def test_a_tracer_finds_label_and_chains_in_the_shuffled_paddles_and_all_of_them_in_the_pixels(
    size: Any, difficulty: Any
) -> None:
    """Markers are found in the picture, and every paddle of the list is drawn where the list says."""
    options = SnakeOptions.published(size, difficulty)
    random = np.random.default_rng(0)
    for drawing in drawings(size, difficulty):
        markers = find_markers(drawing.pixels, options.marker_radius)
        assert np.abs(np.array(sorted(markers.tolist())) - sorted(markers_of(drawing).tolist())).max() <= 1
        centres, orientations, snakes = paddles_of(drawing)
        order = random.permutation(len(snakes))
        centres, orientations, snakes = centres[order], orientations[order], snakes[order]
        traced = trace(centres, orientations, markers, options.paddle_length, drawing.board.margin)
        assert traced.label == drawing.label
        assert sorted(map(len, traced.chains)) == sorted(np.unique(snakes, return_counts=True)[1].tolist())
        assert {len(set(snakes[list(chain)])) for chain in traced.chains} == {1}
        rows, columns = np.floor(centres.T).astype(int)
        around = [drawing.pixels[r : r + 2, c : c + 2].max() for r, c in zip(rows, columns, strict=True)]
        assert min(around) > 60  # thin paddles are dim
        joints = np.rint(traced.joints[:, 1]).astype(int)  # the middle of a gap, unless something else is near
        assert np.median(drawing.pixels[tuple(joints.clip(0, size - 1).T)]) < min(around)


@pytest.mark.parametrize(("size", "difficulty"), TRACED)
def test_snakes_keep_their_distance(size: Any, difficulty: Any) -> None:
    options = SnakeOptions.published(size, difficulty)
    for drawing in drawings(size, difficulty)[:20]:
        margin = drawing.board.margin
        centres, orientations, snakes = paddles_of(drawing)
        traced = trace(centres, orientations, markers_of(drawing), options.paddle_length, margin)
        start, end = traced.joints[:, 0, None], traced.joints[:, 1, None]
        points = start + np.linspace(0, 1, 9)[None, :, None] * (end - start)  # (P, 9, 2) along each link
        apart = np.linalg.norm(points[:, None, :, None] - points[None, :, None, :], axis=-1).min((2, 3))
        assert apart[snakes[:, None] != snakes].min() > 2 * margin - 0.75  # a pixel's rounding
        assert points.min() > 0 and points.max() < size - 1  # and from the border


def test_a_seed_keeps_its_pictures_while_the_version_is_2() -> None:
    """If this fails, GENERATOR_VERSION must change: caches of the old pictures are no longer what the options say."""
    found = {}
    for size, difficulty in SIZES:
        drawing = Snakes(SnakeOptions.published(size, difficulty)).draw(0, 0)
        found[size, difficulty] = drawing.label, markers_of(drawing).tolist(), paddles_of(drawing)[0].sum().item()
    assert found == FIRST
    sums = {key: sum(paddles_of(drawing)[0].sum().item() for drawing in drawings(*key)) for key in TRACED}
    assert sums == {(32, "easy"): 15918.5, (32, "hard"): 29187.5, (128, "intermediate"): 39651.5}


FIRST = {  # label, markers, sum of all centres
    (32, "easy"): (0, [[16, 15], [30, 14]], 707.5),
    (32, "intermediate"): (0, [[16, 14], [1, 18]], 467.0),
    (32, "hard"): (0, [[15, 17], [20, 29]], 736.0),
    (128, "easy"): (0, [[56, 77], [2, 61]], 5803.0),
    (128, "intermediate"): (0, [[77, 46], [124, 17]], 6532.0),
    (128, "hard"): (0, [[40, 59], [126, 106]], 8522.5),
}


def accuracy(classifier: Any, features: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """On the second half after training on the first, and its standard error at chance."""
    half = len(labels) // 2
    score = classifier.fit(features[:half], labels[:half]).score(features[half:], labels[half:])
    return score, 0.5 / (len(labels) - half) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("matched", [True, False])
def test_marker_places_and_ink_reveal_the_label_only_if_scenes_are_not_matched(matched: bool) -> None:
    pictures = many(matched)
    assert abs(labels_of(pictures).mean() - 0.5) < 4 * 0.5 / len(pictures) ** 0.5
    ink = [drawing.pixels.sum() for drawing in pictures]
    places = np.array([markers_of(drawing).ravel() for drawing in pictures], float)
    features = np.column_stack([places, np.hypot(*(places[:, :2].T - 15.5)), distances(pictures), ink])
    probe = HistGradientBoostingClassifier(max_iter=50, learning_rate=0.05, random_state=0)
    score, error = accuracy(probe, features, labels_of(pictures))
    assert (score < 0.5 + 3 * error) == matched


@pytest.mark.parametrize(("difficulty", "mean", "share"), [("easy", 13.1, 0.23), ("hard", 20.3, 0.342)])
def test_ink_is_near_the_published_generators(difficulty: Difficulty, mean: float, share: float) -> None:
    pixels = np.stack([drawing.pixels for drawing in drawings(32, difficulty)])
    assert abs(pixels.mean() / mean - 1) < 0.15
    assert abs((pixels > 0).mean() / share - 1) < 0.15
    assert (pixels.max((1, 2)) == 255).all()


@pytest.mark.slow
def test_a_linear_probe_on_pixels_stays_at_chance() -> None:
    pixels = np.array([drawing.pixels.ravel() for drawing in many()]) / 255
    score, error = accuracy(LogisticRegression(C=1e-2, max_iter=200), pixels, labels_of(many()))
    assert abs(score - 0.5) < 4 * error
