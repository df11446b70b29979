"""The runs that a workspace or a report on Weights & Biases shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sliceformer_lab.commands.compare.row_looks import assign_looks, name_in_figures
from sliceformer_lab.commands.wandb.wandb_options import WandbOptions
from sliceformer_lab.errors import LabError
from sliceformer_lab.runs.collect import RunRecord, collect
from sliceformer_lab.runs.folder import read_config
from sliceformer_lab.runs.groups import tables
from sliceformer_lab.training.results.wandb_names import RUNS, is_wandb, varied_options
from sliceformer_lab.training.results.wandb_runs import ID_FILE

PROJECT, METRIC, BASELINE = "sliceformer_lab", "test/accuracy", "mha"


@dataclass(frozen=True, kw_only=True)
class LoggedRuns:
    """The runs of a project, or those of one sweep, audit, search or map in it."""

    entity: str | None
    project: str
    name: str
    metric: str
    group: str | None = None  # None: every run of the project
    colours: Mapping[str, str] = field(default_factory=dict)  # by attention, those of the report's figures
    baseline: str | None = None  # id of the run with softmax attention and the lowest seed
    varied: tuple[str, ...] = ()  # options in which the runs differ, as keys of a run's configuration on W&B

    @property
    def curve(self) -> str:
        """The metric over epochs."""
        return f"val/{self.metric.partition('/')[2]}"


def logged_runs(options: WandbOptions) -> LoggedRuns:
    """The runs that the options name. Raises LabError for a folder without a run that was logged on W&B."""
    if options.folder is None:
        project = options.project or PROJECT
        name, metric = options.name or project, options.metric or METRIC
        return LoggedRuns(entity=options.entity, project=project, name=name, metric=metric)
    folder = Path(options.folder).expanduser().resolve()
    found = collect(folder)
    runs = [run for run in found.runs if (run.folder / ID_FILE).is_file()]
    node = read_config(runs[0].folder)["logger"] if runs else {}
    if not is_wandb(node):
        raise LabError(f"{folder} holds no run that was logged on W&B; start its runs with logger=wandb")
    made = tables(found, (), options.metric)
    metric = max((table.metric for table in made), key=lambda name: name.startswith("test/"))  # trials have none
    looks = assign_looks(made)
    rows = [row for table in made for row in table.rows]
    return LoggedRuns(
        entity=options.entity or node["entity"],
        project=options.project or node["project"],
        name=options.name or folder.name,
        metric=metric,
        group=node["group"] or folder.name,
        colours={row.attention: looks[name_in_figures(row)].colour for row in reversed(rows)},
        baseline=_find_baseline(runs, metric),
        varied=tuple(_in_configuration(name) for name in varied_options(folder) or varied_options(folder / RUNS)),
    )


def _find_baseline(runs: list[RunRecord], metric: str) -> str | None:
    """The id of the run with softmax attention, the metric and the lowest seed."""
    softmax = [run for run in runs if run.attention == BASELINE and run.metric(metric) is not None]
    first = min(softmax, key=lambda run: run.summary.seed or 0, default=None)
    return None if first is None else (first.folder / ID_FILE).read_text(encoding="utf-8")


def _in_configuration(option: str) -> str:
    """Where an option is in a run's configuration on W&B, in which the nodes of attention and task are in `nodes`."""
    return f"nodes.{option}" if option.startswith(("attention.", "task.")) else option
