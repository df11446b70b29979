"""Figures show what the runs' files say, every row with one look, and never more than the runs carry."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from altair.utils.schemapi import validate_jsonschema
from altair.vegalite.v6.schema.core import load_schema
from PIL import Image
from support.run_folders import write_run, write_runs
from support.spectra import record

from sliceformer_lab.commands.report.figures import Figure, figures, write_figures
from sliceformer_lab.commands.report.figures.curves import learning_curves
from sliceformer_lab.commands.report.figures.plot_rows import PlotTable, plot_tables
from sliceformer_lab.commands.report.figures.scores import score_figures
from sliceformer_lab.commands.report.figures.spectra import spectral_figures
from sliceformer_lab.commands.report.lines import lines
from sliceformer_lab.commands.report.report_options import ReportOptions
from sliceformer_lab.commands.report.table_cells import Section
from sliceformer_lab.measures.plots import COLOURS
from sliceformer_lab.measures.statistics import estimate_over_seeds
from sliceformer_lab.runs.collect import collect
from sliceformer_lab.runs.groups import tables

SEEDS = (0, 1, 2)
CONTROLS = {"identity", "mean", "random_permutation", "depthwise_conv"}


def sections(folder: Path) -> list[Section]:
    chosen = ReportOptions(folder=str(folder))
    return [(table, lines(table, chosen)) for table in tables(collect(folder), chosen.factors, chosen.metric)]


def figures_of(folder: Path, *kinds: Callable[[PlotTable], list[Figure]]) -> dict[str, Figure]:
    """The figures of a folder by name, of some kinds only where a test looks at no others."""
    if not kinds:
        return {figure.name: figure for figure in figures(sections(folder))}
    return {figure.name: figure for about in plot_tables(sections(folder)) for kind in kinds for figure in kind(about)}


def panel_title(panel: dict[str, Any]) -> str:
    title = panel.get("title", "")
    return " ".join(title["text"]) if isinstance(title, dict) else str(title)


def data_of(figure: Figure, panel: str = "") -> pd.DataFrame:
    """The first table of numbers of the panel with this title."""
    (found,) = [p for p in figure.spec["concat"] if panel_title(p) == panel] if panel else figure.spec["concat"]
    names = [part["data"]["name"] for part in [found, *found.get("layer", [])] if "data" in part]
    return pd.read_csv(io.StringIO(figure.spec["datasets"][names[0]]))


def scales(spec: Any, channel: str) -> list[dict[str, Any]]:
    """The range of a channel by its domain, wherever the specification has one for rows."""
    if isinstance(spec, list):
        return [found for part in spec for found in scales(part, channel)]
    if not isinstance(spec, dict):
        return []
    own = spec.get(channel)
    here = []
    if isinstance(own, dict) and own.get("field") == "row":
        here = [dict(zip(own["scale"]["domain"], own["scale"]["range"], strict=True))]
    return here + [found for part in spec.values() for found in scales(part, channel)]


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
def of_study(study: Path) -> dict[str, Figure]:
    return figures_of(study)


def test_every_kind_of_figure_is_valid_and_explains_itself(of_study: dict[str, Figure]) -> None:
    kinds = ["scores", "score_against_speed", "learning_curves", "spectra", "spectra_over_training"]
    assert list(of_study) == [*kinds, "collapse_over_depth", "collapse_over_training"]
    for figure in of_study.values():
        shortened = figure.spec | {"concat": figure.spec["concat"][:1]}
        validate_jsonschema(shortened, load_schema())
        assert figure.title
        assert len(figure.caption) > 60
        assert len(figure.alt) > 15
        assert all(isinstance(panel["width"], int) for panel in figure.spec["concat"])
        assert "config" not in figure.spec


def test_curves_are_means_over_seeds_with_the_interval_of_the_statistics(of_study: dict[str, Figure]) -> None:
    curve = data_of(of_study["learning_curves"], "Validation accuracy")
    at_two = curve[(curve["row"] == "csp") & (curve["x"] == 2)].iloc[0]
    values = [0.5 + 0.02 * seed**2 for seed in SEEDS]
    estimate = estimate_over_seeds(values)
    assert estimate is not None
    interval = estimate.interval()
    assert at_two["n"] == 3
    assert at_two[["mean", "low", "high"]].tolist() == pytest.approx(
        [np.mean(values), interval.low, interval.high], rel=1e-3
    )
    assert sorted(curve["x"].unique()) == [1, 2, 3]
    training = data_of(of_study["learning_curves"], "Training loss")
    assert training[training["row"] == "csp"]["mean"].tolist() == pytest.approx([1.8, 1.4667, 1.39], rel=1e-3)
    assert "csp 61.00" in of_study["learning_curves"].alt


def test_epochs_that_few_runs_reached_are_left_out_and_a_resumed_run_counts_once(tmp_path: Path) -> None:
    runs = write_runs(tmp_path, "csp", 0.8, 0.8, 0.8)
    for run in runs[:2]:
        write_csv(run, [0.2, 0.4])
    write_csv(runs[2], [0.1, 0.9, 0.9, 0.9])
    write_csv(runs[2], [0.2, 0.4, 0.4], version=1)
    curve = data_of(figures_of(tmp_path, learning_curves)["learning_curves"], "Validation accuracy")
    assert curve["x"].tolist() == [1, 2]
    assert curve["mean"].tolist() == pytest.approx([0.2, 0.4])


def test_long_curves_are_thinned_to_both_ends(tmp_path: Path) -> None:
    write_csv(write_run(tmp_path / "a"), [epoch / 1000 for epoch in range(900)])
    curve = data_of(figures_of(tmp_path, learning_curves)["learning_curves"], "Validation accuracy")
    assert 100 < len(curve) <= 200
    assert (curve["x"].iloc[0], curve["x"].iloc[-1]) == (1, 900)


def test_scores_have_every_run_and_the_intervals_of_the_table(study: Path, of_study: dict[str, Figure]) -> None:
    ((_, found),) = sections(study)
    panel = of_study["scores"].spec["concat"][0]
    numbers = [pd.read_csv(io.StringIO(text)) for text in of_study["scores"].spec["datasets"].values()]
    runs = next(table for table in numbers if "seed" in table)
    means = next(table for table in numbers if "label" in table).set_index("row")
    assert len(runs) == 12
    for line in found:
        name = f"{line.row.label} (control)" if line.row.label in CONTROLS else line.row.label
        assert line.interval is not None
        assert means.loc[name, ["value", "low", "high"]].tolist() == pytest.approx(
            [line.mean, line.interval.low, line.interval.high], rel=1e-3
        )
    assert means.index.tolist() == means["value"].sort_values(ascending=False).index.tolist()
    assert "the best constant for the test set, is 10.00 %, outside the panel" in of_study["scores"].caption
    assert panel_title(panel) == "test/accuracy, %"


def test_spectra_are_those_of_the_last_record(study: Path, of_study: dict[str, Figure]) -> None:
    assert [panel_title(p) for p in of_study["spectra"].spec["concat"]] == [
        f"Layer {layer} of 2{form}" for form in ("", ", token mean removed") for layer in (1, 2)
    ]
    table = data_of(of_study["spectra"], "Layer 2 of 2, token mean removed")
    shown = table[table["row"] == "mha"].set_index("x")
    files = [record(2, (-1, 0, 9)).at("spectrum", "output", "mean_removed")[1] * (1 + 0.1 * seed) for seed in SEEDS]
    kept = np.mean(files, axis=0)[: len(shown)]
    assert shown["mean"].tolist() == pytest.approx(kept.tolist(), rel=1e-3)
    assert len(shown) == 8  # as many as channels of 9 tokens; of 6 tokens fewer
    assert shown.index.tolist() == list(range(1, 9))
    assert set(table["row"]) == {"csp", "mha", "sliceformer", "identity (control)"}


def test_collapse_is_shown_over_depth_and_training(of_study: dict[str, Figure]) -> None:
    made = record(2, (-1, 0, 9))
    depth = data_of(of_study["collapse_over_depth"], "Stable rank")
    csp = depth[(depth["row"] == "csp")]
    last, first = (csp[csp["moment"] == words] for words in ("after training", "before training"))
    ranks = made.at("stable_rank", "output", "raw")
    assert last["mean"].tolist() == pytest.approx((1.1 * ranks).tolist(), rel=1e-3)
    assert first["mean"].tolist() == pytest.approx((0.55 * ranks).tolist(), rel=1e-3)
    assert last["low"].notna().all()
    assert first["low"].isna().all()
    training = data_of(of_study["collapse_over_training"], "Stable rank")
    assert training[training["row"] == "csp"]["x"].tolist() == [0, 1, 10]
    assert training[training["row"] == "csp"]["mean"].iloc[-1] == pytest.approx(1.1 * ranks.mean(), rel=1e-3)


def test_a_row_looks_the_same_in_every_figure_and_table(tmp_path: Path) -> None:
    for task, attentions in {"digits": ("csp", "mha", "identity"), "mnist": ("csp", "identity", "samsa")}.items():
        for attention in attentions:
            write_csv(write_run(tmp_path / task / attention, attention, task=task), [0.1, 0.5])
            write_probed(tmp_path / task / attention, 0)
    found = figures_of(tmp_path)
    assert {name.rsplit("_", 1)[1] for name in found} == {"1", "2"}
    for channel in ("color", "shape", "strokeDash"):
        looks: dict[str, Any] = {}
        for scale in scales([figure.spec for figure in found.values()], channel):
            for row, look in scale.items():
                assert looks.setdefault(row, look) == look
        assert set(looks) == {"csp", "mha", "samsa", "identity (control)"}
        if channel == "color":
            assert looks["csp"] in COLOURS
            assert looks["csp"] != looks["mha"] != looks["identity (control)"]
            assert looks["identity (control)"] not in COLOURS


def test_many_rows_differ_in_colour_shape_or_dash_and_the_rest_is_counted(tmp_path: Path) -> None:
    for i in range(15):
        run = write_run(tmp_path / f"r{i}", "csp", 0, 0.5 + 0.01 * i, options={"encoder.depth": i + 1})
        write_csv(run, [0.1, 0.2])
    write_csv(write_run(tmp_path / "mean", "mean", 0, 0.11), [0.1, 0.11])
    curves = figures_of(tmp_path, learning_curves)["learning_curves"]
    channels = [scales(curves.spec, channel)[0] for channel in ("color", "shape", "strokeDash")]
    looks = {row: tuple(str(channel[row]) for channel in channels) for row in channels[0]}
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
    assert data_of(found["spectra"], "Layer 1 of 2")["n"].max() == 1


def test_runs_without_any_file_have_scores_and_speed_alone(tmp_path: Path) -> None:
    write_runs(tmp_path, "csp", 0.8, None)
    assert list(figures_of(tmp_path)) == ["scores", "score_against_speed"]
    write_run(tmp_path / "only" / "failed", "csp", accuracy=None)
    assert figures_of(tmp_path / "only") == {}


def test_png_and_pdf_of_every_figure_are_written(tmp_path: Path, of_study: dict[str, Figure]) -> None:
    chosen = [of_study["scores"], of_study["collapse_over_depth"]]
    written = write_figures(chosen, tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in written] == [
        f"figures/{figure.name}{suffix}" for figure in chosen for suffix in (".png", ".pdf")
    ]
    for path in written:
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG" if path.suffix == ".png" else b"%PDF")
        assert len(content) > 4000
        if path.suffix == ".png":
            with Image.open(path) as drawn:
                assert drawn.mode == "P"  # a palette: a tenth of the size
