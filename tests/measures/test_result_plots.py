"""Pictures of test results show what the predictions hold, at any number of classes and targets, and clip no text."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from sklearn.metrics import mean_absolute_error, r2_score, roc_auc_score

from sliceformer_lab.measures import result_plots
from sliceformer_lab.measures.drawing import draw_chart
from sliceformer_lab.measures.result_plots import Mistake

UNUSED = Path("unused")
PIXELS = np.random.default_rng(0).integers(256, size=(40, 30, 3), dtype=np.uint8)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that would be written."""
    figures: list[Figure] = []
    monkeypatch.setattr(result_plots, "save_chart", lambda chart, path: figures.append(draw_chart(chart)))
    return figures


def assert_no_clipped_text(figure: Figure) -> None:
    """Every text of a figure lies within it."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    width, height = canvas.get_width_height()
    beyond = []  # labels of ticks outside the axes, which are not drawn
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        beyond += [tick.label1 for tick in axis.get_major_ticks() if not low <= tick.get_loc() <= high]
    for text in figure.findobj(Text):
        if isinstance(text, Text) and text.get_text() and text.get_visible() and text not in beyond:
            box = text.get_window_extent(canvas.get_renderer())
            inside = box.x0 >= -2 and box.y0 >= -2 and box.x1 <= width + 2 and box.y1 <= height + 2
            assert inside, (text.get_text(), box, width, height)


@pytest.mark.parametrize("count", [10, 40])
def test_a_confusion_matrix_counts_every_example_by_the_names_of_its_classes(drawn: list[Figure], count: int) -> None:
    rng = np.random.default_rng(0)
    targets = rng.integers(count, size=300)
    outputs = rng.normal(size=(300, count)) + 2 * np.eye(count)[targets]
    names = [f"class $x_{i}$ with a long name {i}" for i in range(count)]
    result_plots.plot_confusion(targets, outputs, names, UNUSED, "test data")
    axes = drawn[0].axes[0]
    shares = np.asarray(axes.images[0].get_array())
    expected = np.zeros((count, count))
    for true, answer in zip(targets, outputs.argmax(axis=1), strict=True):
        expected[true, answer] += 1 / (targets == true).sum()
    np.testing.assert_allclose(shares, expected)
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert len(set(labels)) == count and all(label.startswith("class") for label in labels)
    written = sum(int(text.get_text()) for text in axes.texts)
    assert written == (300 if count <= 20 else 0)
    assert_no_clipped_text(drawn[0])


def test_of_many_classes_those_in_the_most_errors_are_shown(drawn: list[Figure]) -> None:
    targets = np.repeat(np.arange(200), 3)
    outputs = np.eye(200)[targets]
    wrong = (targets >= 50) & (targets < 60)
    outputs[wrong] = np.eye(200)[7]
    result_plots.plot_confusion(targets, outputs, [str(i) for i in range(200)], UNUSED, "test data")
    labels = {label.get_text() for label in drawn[0].axes[0].get_yticklabels()}
    assert {"7", *map(str, range(50, 60))} <= labels and len(labels) == 40
    assert "40 of 200 classes" in drawn[0].get_suptitle().replace("\n", " ")


def test_areas_of_roc_curves_are_those_of_the_known_labels(drawn: list[Figure]) -> None:
    rng = np.random.default_rng(0)
    targets = (rng.random((200, 3)) < 0.3).astype(float)
    outputs = (targets + rng.normal(size=targets.shape)).round(1)  # with equal scores
    targets[:50, 1], targets[:, 2] = np.nan, 1.0
    result_plots.plot_roc(targets, outputs, ["a", "b", "constant"], UNUSED, "test data")
    (legend,) = drawn[0].legends
    areas = [roc_auc_score(targets[start:, i], outputs[start:, i]) for i, start in ((0, 0), (1, 50))]
    texts = [text.get_text() for text in legend.get_texts()]
    assert [text.split(" (")[0] for text in texts] == [f"a: {areas[0]:.3f}", f"b: {areas[1]:.3f}"]
    assert_no_clipped_text(drawn[0])


def test_predicted_numbers_are_next_to_the_true_ones_without_unknown_values(drawn: list[Figure]) -> None:
    rng = np.random.default_rng(0)
    targets = rng.normal(size=(80, 8))
    outputs = targets + 0.3 * rng.normal(size=targets.shape)
    targets[:10, 1] = np.nan
    result_plots.plot_predicted(targets, outputs, [f"t{i}" for i in range(8)], UNUSED, "test data")
    titles = [axes.get_title("left") for axes in drawn[0].axes]
    known = targets[10:, 1], outputs[10:, 1]
    assert len(titles) == 6 and "6 of 8 targets" in drawn[0].get_suptitle().replace("\n", " ")
    assert titles[1] == f"t1: R² {r2_score(*known):.3f}, MAE {mean_absolute_error(*known):.3g}"
    axes = drawn[0].axes[1]
    points = np.asarray(axes.collections[0].get_offsets())
    assert len(points) == 70 and axes.get_xlim() == axes.get_ylim()
    np.testing.assert_array_equal(np.sort(points[:, 0]), np.sort(known[0]))
    assert_no_clipped_text(drawn[0])


@pytest.mark.parametrize(
    ("kind", "content", "count"),
    [
        ("picture", PIXELS, 1),
        ("picture", PIXELS[:30], 5),
        ("picture", PIXELS[:30, :, 0], 2),
        ("smiles", "OC(=O)c1ccccc1", 2),
        ("smiles", "this is no molecule" * 9, 2),
        ("cloud", np.random.default_rng(0).normal(size=(64, 6)), 2),
        ("text", "a $word$ with\ttabs\x00 and\n\nlines, " * 40, 1),
        ("text", "a $word$ with\ttabs\x00 and\n\nlines, " * 40, 12),
        ("text", "", 2),
        (None, None, 2),
    ],
)
def test_mistakes_of_every_kind_name_place_truth_and_answer(
    drawn: list[Figure], kind: str | None, content: str | np.ndarray | None, count: int
) -> None:
    mistakes = [Mistake(f"{'a/folder/' * 9}{i}.dat", content, f"cat {i}", f"dog {i} (99%)") for i in range(count)]
    result_plots.plot_mistakes(mistakes, kind, UNUSED, "test data: the surest of many wrong answers")
    texts = " ".join(text.get_text() for text in drawn[0].findobj(Text) if isinstance(text, Text))
    for i in range(count):
        assert f"true: cat {i}" in texts and f"dog {i} (99%)" in texts and f"{i}.dat" in texts
    assert_no_clipped_text(drawn[0])
    written = [text for axes in drawn[0].axes for text in (*axes.texts, axes.title) if text.get_text()]
    boxes = [text.get_window_extent() for text in written]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
