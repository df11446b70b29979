"""Figures show what the runs' files say, every row with one look, and never more than the runs carry."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import same_color
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from support.run_folders import write_run, write_runs
from support.spectra import record

from sliceformer_lab.commands.report.figures import figures
from sliceformer_lab.commands.report.figures.curves import learning_curves
from sliceformer_lab.commands.report.figures.plot_rows import PageFigure, PlotTable, plot_tables
from sliceformer_lab.commands.report.figures.scores import score_figures
from sliceformer_lab.commands.report.figures.spectra import spectral_figures
from sliceformer_lab.commands.report.report_options import ReportOptions
from sliceformer_lab.commands.report.table_cells import Section
from sliceformer_lab.commands.report.write_report import read_sections
from sliceformer_lab.measures.drawing import COLOURS, STYLE
from sliceformer_lab.measures.statistics import estimate_over_seeds

SEEDS = (0, 1, 2)


def sections(folder: Path) -> list[Section]:
    return read_sections(ReportOptions(folder=str(folder)))[1]


def figures_of(folder: Path, *kinds: Callable[[PlotTable], list[PageFigure]]) -> dict[str, PageFigure]:
    """The figures of a folder by name, of some kinds only where a test looks at no others."""
    if not kinds:
        return {figure.name: figure for figure in figures(sections(folder))}
    return {figure.name: figure for about in plot_tables(sections(folder)) for kind in kinds for figure in kind(about)}


def draw_panels(figure: PageFigure) -> dict[str, Axes]:
    """The panels of a figure by their titles."""
    found = {}
    for panel in figure.panels:
        with rc_context(STYLE):
            axes = Figure().subplots()
            panel(axes)
        found[axes.get_title("left").replace("\n", " ")] = axes
    return found


def look(line: Line2D) -> tuple[object, ...]:
    return line.get_color(), line.get_marker(), line.get_linestyle()


def entry(figure: PageFigure, row: str) -> Line2D:
    """What the legend says of a row."""
    return next(line for line in figure.legend if line.get_label() == row)


def points(figure: PageFigure, panel: str, row: str, style: str = "-") -> tuple[list[float], list[float]]:
    """The x and y of the line of a row: after training, or with style -- before it."""
    lines = [
        line
        for line in draw_panels(figure)[panel].lines
        if line.get_color() == entry(figure, row).get_color() and line.get_linestyle() == style
    ]
    return np.asarray(lines[0].get_xdata()).tolist(), np.asarray(lines[0].get_ydata()).tolist()


def band(figure: PageFigure, panel: str, row: str, x: float) -> NDArray[Any]:
    """Low and high of the band of a row at x."""
    (found,) = [
        area
        for area in draw_panels(figure)[panel].collections
        if isinstance(area, PolyCollection)
        and same_color(area.get_facecolor()[0][:3], str(entry(figure, row).get_color()))
    ]
    corners = np.concatenate([path.vertices for path in found.get_paths()])
    return np.unique(corners[corners[:, 0] == x][:, 1])


def write_csv(folder: Path, accuracies: list[float], version: int = 0) -> None:
    """metrics.csv as Lightning writes it: validation and training metrics of an epoch on lines of their own."""
    place = folder / "csv" / f"version_{version}"
    place.mkdir(parents=True)
    rows = ["epoch,step,train/loss,val/accuracy,val/loss"]
    for epoch, accuracy in enumerate(accuracies):
        rows += [f"{epoch},{10 * epoch},,{accuracy},{1 - accuracy}", f"{epoch},{10 * epoch + 1},{2 - accuracy},,"]
    (place / "metrics.csv").write_text("\n".join(rows) + "\n")


def write_probed(folder: Path, seed: int, depth: int = 2) -> None:
    """spectrum.npz of a run: before training and after epochs 1 and 10, different for each seed."""
    made = record(depth, (-1, 0, 9))
    factors = np.linspace(0.5, 1, 3) * (1 + 0.1 * seed)
    mean = {name: values * factors.reshape(-1, *[1] * (values.ndim - 1)) for name, values in made.mean.items()}
    replace(made, mean=mean).save(folder / "spectrum.npz")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three attentions and a control, three seeds each, logged and probed."""
    folder = tmp_path_factory.mktemp("study")
    for i, attention in enumerate(("csp", "mha", "sliceformer", "identity")):
        runs = write_runs(folder, attention, *(0.8 + 0.03 * i + 0.01 * seed**2 for seed in SEEDS))
        for seed, run in enumerate(runs):
            write_csv(run, [0.2 + 0.1 * i, 0.5 + 0.02 * seed**2, 0.6 + 0.1 * i + 0.01 * seed])
            write_probed(run, seed)
    return folder


@pytest.fixture(scope="module")
def of_study(study: Path) -> dict[str, PageFigure]:
    return figures_of(study)


def test_every_kind_of_figure_and_every_panel_explains_itself(of_study: dict[str, PageFigure]) -> None:
    kinds = ["scores", "score_against_speed", "learning_curves", "spectra", "spectra_over_training"]
    assert list(of_study) == [*kinds, "collapse_over_depth", "collapse_over_training"]
    for figure in of_study.values():
        assert figure.title and figure.caption and figure.alt
        assert all(axes.get_title("left") or axes.get_ylabel() for axes in draw_panels(figure).values())


def test_curves_are_means_over_seeds_with_the_interval_of_the_statistics(of_study: dict[str, PageFigure]) -> None:
    figure = of_study["learning_curves"]
    epochs, means = points(figure, "Validation accuracy", "csp")
    values = [0.5 + 0.02 * seed**2 for seed in SEEDS]
    estimate = estimate_over_seeds(values)
    interval = estimate.interval()
    assert epochs == [1, 2, 3] and means[1] == pytest.approx(np.mean(values))
    assert band(figure, "Validation accuracy", "csp", 2) == pytest.approx([interval.low, interval.high])
    assert points(figure, "Training loss", "csp")[1] == pytest.approx([1.8, 1.4667, 1.39], rel=1e-3)
    assert "csp 61.00" in of_study["learning_curves"].alt


def test_epochs_that_few_runs_reached_are_left_out_and_a_resumed_run_counts_once(tmp_path: Path) -> None:
    runs = write_runs(tmp_path, "csp", 0.8, 0.8, 0.8)
    for run in runs[:2]:
        write_csv(run, [0.2, 0.4])
    write_csv(runs[2], [0.1, 0.9, 0.9, 0.9])
    write_csv(runs[2], [0.2, 0.4, 0.4], version=1)
    epochs, means = points(figures_of(tmp_path, learning_curves)["learning_curves"], "Validation accuracy", "csp")
    assert epochs == [1, 2] and means == pytest.approx([0.2, 0.4])


def test_scores_have_every_run_and_the_intervals_of_the_table(study: Path, of_study: dict[str, PageFigure]) -> None:
    ((_, found),) = sections(study)
    axes = draw_panels(of_study["scores"])["test/accuracy, %"]
    shown = [text.get_text() for text in axes.texts]
    assert shown == ["identity (control), n = 3", "sliceformer, n = 3", "mha, n = 3", "csp, n = 3"]  # best first
    rows = {line.row.label: line for line in found}
    for place, name in enumerate(re.split("[ ,]", text)[0] for text in shown):
        runs, span, mean = (np.asarray(line.get_xdata()).tolist() for line in axes.lines[3 * place : 3 * place + 3])
        interval = rows[name].interval
        assert sorted(runs) == sorted(rows[name].values.values())
        assert (span, mean) == ([interval.low, interval.high], [rows[name].mean])
    assert "the best constant for the test set, is 10.00 % (outside the panel)" in of_study["scores"].caption


def test_spectra_are_those_of_the_last_record(study: Path, of_study: dict[str, PageFigure]) -> None:
    titles = [f"Layer {layer} of 2{form}" for form in ("", ", token mean removed") for layer in (1, 2)]
    assert list(draw_panels(of_study["spectra"])) == titles
    index, means = points(of_study["spectra"], titles[-1], "mha")
    files = [record(2, (-1, 0, 9)).at("spectrum", "output", "mean_removed")[1] * (1 + 0.1 * seed) for seed in SEEDS]
    assert index == list(range(1, 9))  # as many as channels of 9 tokens; of 6 tokens fewer
    assert means == pytest.approx(np.mean(files, axis=0)[:8].tolist())


def test_collapse_is_shown_over_depth_and_training(of_study: dict[str, PageFigure]) -> None:
    depth, training = of_study["collapse_over_depth"], of_study["collapse_over_training"]
    ranks = record(2, (-1, 0, 9)).at("stable_rank", "output", "raw")
    assert points(depth, "Stable rank", "csp")[1] == pytest.approx((1.1 * ranks).tolist())
    assert points(depth, "Stable rank", "csp", "--")[1] == pytest.approx((0.55 * ranks).tolist())
    assert len(band(depth, "Stable rank", "csp", 2)) == 2  # one band, after training
    epochs, means = points(training, "Stable rank", "csp")
    assert epochs == [0, 1, 10] and means[-1] == pytest.approx(1.1 * ranks.mean())


def test_a_row_looks_the_same_in_every_figure_and_table(tmp_path: Path) -> None:
    for task, attentions in {"digits": ("csp", "mha", "identity"), "mnist": ("csp", "identity", "samsa")}.items():
        for attention in attentions:
            write_csv(write_run(tmp_path / task / attention, attention, task=task), [0.1, 0.5])
            write_probed(tmp_path / task / attention, 0)
    found = figures_of(tmp_path)
    assert {name.rsplit("_", 1)[1] for name in found} == {"1", "2"}
    looks: dict[str, tuple[object, ...]] = {}
    for figure in (figure for name, figure in found.items() if name.startswith(("learning_curves", "spectra_1"))):
        for line in figure.legend:
            assert looks.setdefault(str(line.get_label()), look(line)) == look(line)
    assert set(looks) == {"csp", "mha", "samsa", "identity (control)"}
    colours = [looks[name][0] for name in ("csp", "mha", "identity (control)")]
    assert colours[0] in COLOURS and colours[2] not in COLOURS and len(set(colours)) == 3


def test_many_rows_differ_in_colour_shape_or_dash_and_the_rest_is_counted(tmp_path: Path) -> None:
    for i in range(15):
        run = write_run(tmp_path / f"r{i}", "csp", 0, 0.5 + 0.01 * i, options={"encoder.depth": i + 1})
        write_csv(run, [0.1, 0.2])
    write_csv(write_run(tmp_path / "mean", "mean", 0, 0.11), [0.1, 0.11])
    curves = figures_of(tmp_path, learning_curves)["learning_curves"]
    looks = {str(line.get_label()): look(line) for line in curves.legend}
    assert len(looks) == len(set(looks.values())) == 12
    assert "mean (control)" in looks
    assert not any("encoder.depth=2" in row.split() for row in looks)  # near chance
    assert "12 of 16 rows are shown" in curves.caption
    assert len(figures_of(tmp_path, score_figures)["scores"].alt.split(",")) == 17  # the metric's unit, and 16 rows


def test_half_written_and_missing_files_are_counted_and_raise_nothing(tmp_path: Path) -> None:
    runs = write_runs(tmp_path, "csp", *[0.9] * 6)
    write_csv(runs[0], [0.1, 0.2])
    for run in runs[:3]:
        write_probed(run, 0)
    whole = (runs[1] / "spectrum.npz").read_bytes()
    (runs[1] / "spectrum.npz").write_bytes(whole[: len(whole) // 2])
    (runs[2] / "spectrum.npz").write_bytes(b"")
    for run, text in zip(runs[1:5], ("", "epoch,st", "\x00\x01,\n", 'epoch,step,val/accuracy\n0,"1'), strict=True):
        (run / "csv" / "version_0").mkdir(parents=True)
        (run / "csv" / "version_0" / "metrics.csv").write_text(text)
    found = figures_of(tmp_path, learning_curves, spectral_figures)
    assert "5 runs have no log" in found["learning_curves"].caption
    assert "5 runs have no readable spectrum.npz" in found["spectra"].caption
    assert len(points(found["spectra"], "Layer 1 of 2", "csp")[0]) == 8


def test_runs_without_any_file_have_scores_and_speed_alone(tmp_path: Path) -> None:
    write_runs(tmp_path, "csp", 0.8, None)
    assert list(figures_of(tmp_path)) == ["scores", "score_against_speed"]
    write_run(tmp_path / "only" / "failed", "csp", accuracy=None)
    assert figures_of(tmp_path / "only") == {}
