"""The panels of a saved workspace and of a report; they read keys that our runs log."""

from __future__ import annotations

import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws
from wandb_workspaces.reports.v2.interface import PanelTypes

from sliceformer_lab.commands.wandb.logged_runs import LoggedRuns
from sliceformer_lab.training.results.wandb_charts import (
    BY_DEPTH,
    LINE_SERIES,
    LINE_SERIES_FIELDS,
    SPECTRUM_BY_LAYER,
    SPECTRUM_OVER_TRAINING,
)
from sliceformer_lab.training.results.wandb_names import JOBS, ROWS

ATTENTION = "attention"  # key of a run's configuration
RESULTS = ["pictures/scores", "pictures/differences", "pictures/learning_rate", "pictures/map"]  # of many runs
SCALARS = {  # key of the history, a mean over layers -> title
    "spectrum/output_stable_rank_mean": "Stable rank of the operator's output",
    "spectrum/output_stable_rank_centred_mean": "Stable rank of the operator's output, token mean removed",
    "spectrum/output_residual_mean": "Relative rank-1 residual of the operator's output",
    "spectrum/output_cosine_mean": "Mean cosine between tokens of the operator's output",
}
NOTE = (
    "Bars and lines are means and standard deviations over all shown runs, whatever their seeds and settings: W&B "
    "draws no intervals, so they are in the picture. Each sweep logs intervals, paired tests and failed runs in "
    f"`{ROWS}` and `{JOBS}`; a difference between bars is not a test. Compare speeds on one machine only."
)


def workspace(runs: LoggedRuns, entity: str) -> ws.Workspace:
    """The workspace, defined without contact to the server; runs have the colours of our figures."""
    return ws.Workspace(
        entity=entity,
        project=runs.project,
        name=runs.name,
        sections=[ws.Section(name=name, panels=panels, is_open=True) for name, panels in sections(runs).items()],
        settings=ws.WorkspaceSettings(max_runs=100),
        runset_settings=ws.RunsetSettings(
            filters="" if runs.group is None else f"Metric('Group') == '{runs.group}'",
            groupby=[ws.Config(ATTENTION)],
            group_colors=dict(runs.colours),
            baseline_run=runs.baseline,
        ),
    )


def sections(runs: LoggedRuns) -> dict[str, list[PanelTypes]]:
    """The panels of each section."""
    metric = runs.metric
    return {
        "Metric by attention": [
            wr.MediaBrowser(title="Results with intervals", media_keys=RESULTS, layout=wr.Layout(w=24)),
            wr.BarPlot(
                title=f"{metric} by attention",
                metrics=[wr.SummaryMetric(metric)],
                groupby=wr.Config(ATTENTION),
                groupby_aggfunc="mean",
                groupby_rangefunc="stddev",
            ),
            wr.MarkdownPanel(markdown=NOTE),
            wr.WeavePanelSummaryTable(table_name=ROWS, layout=wr.Layout(w=24)),
            wr.WeavePanelSummaryTable(table_name=JOBS, layout=wr.Layout(w=24)),
        ],
        "Metric against cost": [
            wr.ScatterPlot(
                title=f"{metric} against {label}", x=wr.SummaryMetric(key), y=wr.SummaryMetric(metric), log_x=True
            )
            for key, label in {
                "samples_per_second": "training, samples/s",
                "peak_memory_gb": "peak memory, GB",
                "parameters": "parameters",
                "multiply_adds": "multiply-adds a sample",
            }.items()
        ]
        + [wr.MediaBrowser(title="Speed and memory of a sweep", media_keys=["pictures/score_against_speed"])],
        "Learning curves": [
            _plot_curve(runs.curve, runs.curve, "epoch"),
            _plot_curve("train/loss", "Training loss", "trainer/global_step"),
            wr.MediaBrowser(title="Curves of single runs", media_keys=["pictures/curves"]),
        ],
        "Confusion and mistakes": [
            wr.MediaBrowser(title=title, media_keys=[f"pictures/{name}"])
            for name, title in {"confusion": "Confusion", "mistakes": "Mistakes"}.items()
        ],
        "Spectra by layer": [
            *(_plot_curve(key, title, "epoch") for key, title in SCALARS.items()),
            _line_series(SPECTRUM_BY_LAYER, "log10 of s_i / s_1 by layer", "index i of the singular value"),
            _line_series(SPECTRUM_OVER_TRAINING, "log10 of s_i / s_1 over training", "index i of the singular value"),
            wr.MediaBrowser(title="Spectra of single runs", media_keys=["pictures/spectrum"]),
            *(_line_series(key, title, "layer") for key, (_, _, title) in BY_DEPTH.items()),
        ],
        "Options": [
            wr.ParallelCoordinatesPlot(
                title=f"{metric} over the options that vary",
                columns=[
                    *(wr.ParallelCoordinatesPlotColumn(wr.Config(key)) for key in runs.varied or (ATTENTION, "seed")),
                    wr.ParallelCoordinatesPlotColumn(wr.SummaryMetric(metric)),
                ],
            ),
            wr.ParameterImportancePlot(with_respect_to=metric),
            wr.RunComparer(diff_only="split", layout=wr.Layout(w=24)),
        ],
    }


def _plot_curve(key: str, title: str, axis: str) -> wr.LinePlot:
    """A metric of the history by attention."""
    return wr.LinePlot(
        title=title,
        x=axis,
        y=[key],
        groupby=wr.Config(ATTENTION),
        groupby_aggfunc="mean",
        groupby_rangefunc="stddev",
    )


def _line_series(key: str, title: str, xname: str) -> wr.CustomChart:
    """A chart that each run logs."""
    return wr.CustomChart(
        query={"summaryTable": {"tableKey": f"{key}_table"}},
        chart_name=LINE_SERIES,
        chart_fields=LINE_SERIES_FIELDS,
        chart_strings={"title": title, "xname": xname},
    )
