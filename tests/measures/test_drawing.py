"""A chart clips no text, and every name in it can be read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg

from sliceformer_lab.measures import drawing
from sliceformer_lab.measures.drawing import Chart, Look, draw_chart, legend_of, names_in_picture, shorten_path


def draw_line(axes: Axes) -> None:
    axes.plot([0, 1])


@pytest.mark.parametrize("columns", [1, 2, 5])
def test_long_names_and_a_long_heading_stay_within_the_figure(columns: int) -> None:
    looks = {f"random_permutation_{i} (control, only untrained)": Look("0.5", "o") for i in range(7)}
    chart = Chart(panels=[draw_line] * columns, legend=legend_of(looks), heading="many words " * 30, columns=columns)
    figure = draw_chart(chart)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    width, height = canvas.get_width_height()
    assert figure._suptitle is not None
    for part in (figure.legends[0], figure._suptitle):
        box = part.get_window_extent(canvas.get_renderer())
        assert box.x0 >= 0 and box.x1 <= width and box.y0 >= 0 and box.y1 <= height


@pytest.fixture
def fonts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The fonts of pictures: only matplotlib's own, unless a test adds one."""
    names = ["DejaVu Sans"]
    monkeypatch.setitem(drawing.STYLE, "font.family", names)
    drawing._known_letters.cache_clear()
    yield names
    drawing._known_letters.cache_clear()


def test_a_class_whose_name_no_font_can_write_is_its_number_and_the_picture_says_so(fonts: list[str]) -> None:
    written, remark = names_in_picture(["cat", "\u732b", "cr\u00e8me br\u00fbl\u00e9e"])
    assert list(written) == ["cat", "1", "cr\u00e8me br\u00fbl\u00e9e"]
    assert "some names are numbers" in remark
    assert names_in_picture(["cat", "dog one"]) == (["cat", "dog one"], "")
    assert shorten_path("\u732b/7.png") == "?/7.png"


def test_an_installed_font_with_these_letters_writes_them(fonts: list[str]) -> None:
    letters = "\U0001d538\ufb06"  # of fonts that come with matplotlib: the first has both, the second neither
    assert names_in_picture([letters])[1] == "" and "DejaVu Sans" in fonts
    fonts[:] = ["cmr10"]
    drawing._known_letters.cache_clear()
    assert names_in_picture([letters])[0] == ["0"]
