"""What tests of several commands share."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from sliceformer_lab.commands.benchmark import run_suite
from sliceformer_lab.commands.compare import draw
from sliceformer_lab.commands.map import draw_map
from sliceformer_lab.measures.drawing import draw_chart


@pytest.fixture
def unwritten_pictures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Comparisons and maps draw these pictures but write none, which takes a third of the time of written runs."""
    figures: list[Figure] = []
    for module in (draw, draw_map):
        monkeypatch.setattr(module, "save_chart", lambda chart, path: figures.append(draw_chart(chart)))
    return figures


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A benchmark measures here in place of a child, which would import torch again."""
    monkeypatch.setattr(run_suite, "in_child", lambda function, *arguments, limited: function(*arguments))
