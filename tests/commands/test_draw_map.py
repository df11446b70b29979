"""A map's picture can be read: no text lies on another, with few attentions and with many, in groups or not."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sliceformer_lab.commands.map import draw_map as picture
from sliceformer_lab.commands.map.cells import Cell, Floors
from sliceformer_lab.commands.map.map_options import MapOptions, ProbeName
from sliceformer_lab.commands.map.map_results import Map, ProbeRun, Result
from sliceformer_lab.measures.drawing import draw_chart

PROBES: tuple[ProbeName, ...] = ("count", "recall", "back_far")
FLOORS = Floors(0.031, 0.208)


def drawn(
    attentions: tuple[str, ...], groups: dict[str, tuple[str, ...]] | None, tmp_path: Path, status: str = "ok"
) -> Axes:
    """The axes of the picture; two of three seeds reached .99, so that the small text is as long as it can be.

    The first seed has the status.
    """
    options = MapOptions(attentions=attentions, probes=PROBES, folder="")
    results = {}
    for name in attentions:
        for probe in PROBES:
            runs = tuple(
                ProbeRun(3e-3, 100 + i, "ok" if i else status, 0.991, 600.0 if i else None, 1.0, None, None, None)
                for i in range(3)
            )
            results[name, probe] = Result(Cell(name, probe, options, FLOORS), (), 3e-3, runs)
    figures: list[Figure] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(picture, "save_chart", lambda chart, path: figures.append(draw_chart(chart)))
        picture.draw_map(Map(options, results), tmp_path / "map.png", groups)
    figures[0].draw_without_rendering()
    return figures[0].axes[0]


@pytest.mark.parametrize("count", [2, picture.MIN_LOW_ROWS])
def test_texts_do_not_overlap(count: int, tmp_path: Path) -> None:
    names = tuple(f"matrix_toeplitz_{i}" for i in range(count))
    axes = drawn(names, {"softmax attention": names[:1], "controls that mix nothing": names[1:]}, tmp_path)
    boxes = {text: text.get_window_extent() for text in (*axes.texts, *axes.get_yticklabels()) if text.get_text()}
    assert len(boxes) >= 2 * len(PROBES) * count + 2
    for (first, a), (second, b) in combinations(boxes.items(), 2):
        assert not a.overlaps(b), f"{first.get_text()!r} lies on {second.get_text()!r}"


def test_a_mean_with_a_run_that_diverged_is_marked(tmp_path: Path) -> None:
    texts = {text.get_text() for text in drawn(("csp",), None, tmp_path, status="diverged").texts}
    assert ".671†" in texts, "two scores of .991 and a chance of .031"
    assert not any("†" in text.get_text() for text in drawn(("csp",), None, tmp_path).texts)
