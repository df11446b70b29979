"""Learning curves from the metrics that runs log."""

from __future__ import annotations

import pandas as pd

from sliceformer_lab.commands.report.figures.plot_rows import PageFigure, PlotTable
from sliceformer_lab.measures.drawing import Look, Panel, legend_of
from sliceformer_lab.measures.line_panels import ROW, axis_bounds, line_panel, seed_means, thin_out
from sliceformer_lab.measures.metric_scale import format_heading, format_value, metric_bounds
from sliceformer_lab.runs.collect import RunRecord
from sliceformer_lab.runs.folder import read_metrics
from sliceformer_lab.runs.plain_text import format_range

PANELS = ("metric", "val/loss", "train/loss")


def learning_curves(plotted: PlotTable) -> list[PageFigure]:
    """The validation metric and both losses per epoch; empty if no run has a log."""
    name = plotted.metric.partition("/")[2].removesuffix("_best_test_epoch")
    found, without = [], 0
    for row in plotted.main_rows:
        for run in row.runs:
            curve = curve_of(run, name)
            without += curve.empty
            found.append(curve.assign(**{ROW: row.name}))
    values = pd.concat(found, ignore_index=True) if found else pd.DataFrame()
    if values.empty:
        return []
    table = seed_means(values, [ROW, "panel", "x"])
    looks = plotted.looks(table)
    panels = [_build_panel(table, looks, panel, name) for panel in PANELS if panel in set(table["panel"])]
    left_out = f" {without} runs have no log." if without else ""
    ends = table[table["panel"] == table["panel"].iloc[0]].groupby(ROW).tail(1)
    figure = PageFigure(
        name=f"learning_curves{plotted.suffix}",
        title="Learning curves",
        caption=(
            f"Mean over the {format_range(table['n'])} seeds of a row, with pointwise 95 % intervals (Student's t) "
            "from three seeds on. An epoch is shown if at least half of a row's runs reached it."
            f"{plotted.omission(plotted.main_rows)}{left_out}"
        ),
        alt=f"Validation {format_heading(name)}, at the last epoch: "
        + ", ".join(f"{row} {format_value(mean, name)}" for row, mean in zip(ends[ROW], ends["mean"], strict=True)),
        panels=panels,
        legend=legend_of(looks),
    )
    return [figure]


def _build_panel(table: pd.DataFrame, looks: dict[str, Look], panel: str, name: str) -> Panel:
    title = {"metric": f"Validation {name}", "val/loss": "Validation loss", "train/loss": "Training loss"}[panel]
    here = table[table["panel"] == panel]
    epochs = here[here["x"].isin(thin_out(here["x"].to_numpy()))]
    metric = name if panel == "metric" else "loss"
    low, high = epochs["mean"].min(), epochs["mean"].max()
    log = panel != "metric" and 0 < 10 * low < high  # else late epochs would look flat
    domain = axis_bounds(epochs["mean"], log, metric_bounds(metric))
    return line_panel(epochs, looks, x="epoch", title=title, metric=metric, log=log, domain=domain)


def curve_of(run: RunRecord, name: str) -> pd.DataFrame:
    """The columns panel, x and value of a run: the last value of each epoch; empty without a readable log."""
    empty = pd.DataFrame(columns=["panel", "x", "value"])
    try:
        logged = read_metrics(run.folder)
        columns = {"metric": f"val/{name}", "val/loss": "val/loss", "train/loss": "train/loss"}
        if f"test_curve/{name}" in logged:  # the epoch was selected on the test set
            columns |= {"metric": f"test_curve/{name}", "val/loss": "test_curve/loss"}
        epochs = pd.to_numeric(logged["epoch"], errors="coerce") + 1
    except (OSError, KeyError, ValueError):
        return empty
    found = []
    for panel, column in columns.items():
        if column in logged and not (panel != "metric" and columns["metric"] == column):
            values = pd.to_numeric(logged[column], errors="coerce")
            curve = dict(
                zip(epochs[values.notna()], values[values.notna()], strict=True)
            )  # the last value of each epoch
            found += [(panel, epoch, value) for epoch, value in curve.items()]
    return pd.DataFrame(found, columns=["panel", "x", "value"]).dropna()
