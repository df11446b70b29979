"""What tests of several commands share."""

from __future__ import annotations

import pytest

from sliceformer_lab.commands.compare import draw
from sliceformer_lab.commands.map import draw_map
from sliceformer_lab.measures.drawing import draw_chart


@pytest.fixture
def unwritten_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparisons and maps draw their pictures but write none, which takes a third of the time of written runs."""
    for module in (draw, draw_map):
        monkeypatch.setattr(module, "save_chart", lambda chart, path: draw_chart(chart))
