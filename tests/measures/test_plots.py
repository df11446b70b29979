"""Pictures show every line they are given, at any depth, and read the table as logged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from support.spectra import record

from sliceformer_lab.measures import plots
from sliceformer_lab.measures.drawing import draw_chart
from sliceformer_lab.measures.probe_record import MEASURES, PLACES, ProbeRecord


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that would be written."""
    figures: list[Figure] = []
    monkeypatch.setattr(plots, "save_chart", lambda chart, path: figures.append(draw_chart(chart)))
    return figures


@pytest.mark.parametrize(("depth", "epochs"), [(1, (-1,)), (12, (-1, 9, 19))])
def test_spectra_show_every_layer_at_start_and_end(drawn: list[Figure], depth: int, epochs: tuple[int, ...]) -> None:
    plots.plot_spectra(record(depth, epochs), Path("unused"))
    moments = min(len(epochs), 2)
    spectra = [axes for axes in drawn[0].axes if axes.get_yscale() == "log"]
    assert [len(axes.lines) for axes in spectra] == [depth] * 2 * moments
    assert all(np.size(line.get_xdata()) == 8 for axes in spectra for line in axes.lines)  # not the stream's 4
    over_depth = [axes for axes in drawn[0].axes if axes.get_xlabel() == "layer" and axes.lines]
    assert [len(axes.lines) for axes in over_depth] == [len(PLACES) * moments] * 4
    for axes in over_depth:
        low, high = axes.get_ylim()
        assert all(
            low <= value <= high for line in axes.lines for value in np.atleast_1d(line.get_ydata())
        )  # nothing is cut off
    assert ("after epoch" in spectra[-1].get_title("left")) == (epochs[-1] >= 0)
    drawn[0].draw_without_rendering()
    assert all(label.get_text().isdigit() for axes in over_depth for label in axes.get_xticklabels())


def test_curves_take_the_last_value_of_an_epoch_and_every_score(drawn: list[Figure]) -> None:
    table = pd.DataFrame(
        {
            "epoch": [0, 0, 1, 1, 1],
            "train/loss": [2.0, None, None, 1.5, 1.0],
            "val/loss": [None, 1.8, 1.2, None, None],
            "val/accuracy": [None, 0.3, 0.6, None, None],
            "train/samples_per_second": [9.0, None, None, 9.0, 9.0],
        }
    )
    plots.plot_curves(table, Path("unused"))
    loss, score = drawn[0].axes
    assert {str(line.get_label()): np.atleast_1d(line.get_ydata()).tolist() for line in loss.lines} == {
        "train/loss": [2.0, 1.0],
        "val/loss": [1.8, 1.2],
    }
    assert [line.get_label() for line in score.lines] == ["val/accuracy"]
    assert np.atleast_1d(loss.lines[0].get_xdata()).tolist() == [1, 2]
    plots.plot_curves(table.assign(**{"val/accuracy": [None, 0.3, 1.0, None, None]}), Path("unused"))
    assert drawn[1].axes[1].get_ylim()[1] == 1.0, "no accuracy is beyond 100 %"


def test_record_survives_its_file(tmp_path: Path) -> None:
    first = record(2, (-1, 4))
    first.save(tmp_path / "spectrum.npz")
    again = ProbeRecord.load(tmp_path / "spectrum.npz")
    for name in MEASURES:
        np.testing.assert_array_equal(again.mean[name], first.mean[name])
        np.testing.assert_array_equal(again.std[name], first.std[name])
    assert again.note == "made up"
    assert again.up_to(-1).followed_by(record(2, (4,))).epochs.tolist() == [-1, 4]
