"""The rows of an audit: each attention with its composed configuration, checked before the first run starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sliceformer_lab.commands.audit.audit_options import BASE, AuditOptions, Axis
from sliceformer_lab.commands.audit.trial_points import Point
from sliceformer_lab.config.checked import check_config
from sliceformer_lab.config.explain import job_config
from sliceformer_lab.config.plain_checks import missing_files
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.errors import DataError, LabError
from sliceformer_lab.runs.names import digest
from sliceformer_lab.runs.sweep import PlannedJob, override_key
from sliceformer_lab.training.budget import model_cost, within_budget
from sliceformer_lab.training.build import build_data, build_task

OF_RUNS = ("pictures=false", "reference=null")
OF_TRIALS = "score_test=false"
WIDTHS = ("attention.inner_mult", "encoder.mlp_dim", "encoder.dim")


@dataclass(eq=False)
class Row:
    """One attention of an audit."""

    attention: str
    options: AuditOptions
    config: Mapping[str, Any]  # with the recipe's own values
    axis_words: dict[Axis, tuple[str, ...]] = field(default_factory=dict)  # of the axes that it can meet
    refused: dict[Axis, str] = field(default_factory=dict)  # why it cannot meet the others
    base_parameters: int | None = None  # of the model with mha; None: not compared

    @property
    def words(self) -> tuple[str, ...]:
        """The overrides of all its runs, without seed, axis and tuned values."""
        return row_words(self.attention, self.options)

    def trial(self, point: Point, seed: int) -> PlannedJob:
        """A run that tries a point; it does not score the test set."""
        words = (*self.words, *self._sizes(self.options.axes[0]), OF_TRIALS, f"seed={seed}")
        return self._job("trial", (*words, *point.words(self.config["optim"])), seed)

    def reporting(self, axis: Axis, point: Point, seed: int) -> PlannedJob:
        """A run that scores the chosen point with a reporting seed."""
        words = (*self.words, *self._sizes(axis), f"seed={seed}", *point.words(self.config["optim"]))
        return self._job("report", words, seed)

    def _sizes(self, axis: Axis) -> tuple[str, ...]:
        """The words of an axis, or of another one where this row cannot meet it."""
        return self.axis_words.get(axis, next(iter(self.axis_words.values()), ()))

    def _job(self, kind: str, words: Sequence[str], seed: int) -> PlannedJob:
        """A job whose name depends on its words: equal runs of two axes are one run."""
        known = digest(" ".join(word for word in words if not word.startswith("paths.")))
        return PlannedJob(f"{kind}-{self.attention}-{known}-seed{seed}", tuple(words))


def row_words(attention: str, options: AuditOptions) -> tuple[str, ...]:
    """The overrides of the runs of a row. Options of the attention belong to the subject only."""
    others = [word for word in options.words if override_key(word).split(".")[0] != "attention"]
    given = options.words if attention == options.subject else others
    return (*OF_RUNS, *given, f"attention={attention}")


def checked_rows(options: AuditOptions) -> tuple[list[Row], dict[str, str]]:
    """The rows that can run, the subject first, and why the others cannot. Raises LabError if the subject cannot."""
    rows: list[Row] = []
    refused: dict[str, str] = {}
    for attention in options.attentions:
        try:
            rows.append(Row(attention, options, checked(attention, options)))
        except LabError as error:
            if attention == options.subject:
                raise
            refused[attention] = " ".join(str(error).split())
    if len(rows) == 1:
        raise ConfigError(
            f"no row to compare {options.subject} with, the first because of: {next(iter(refused.values()))}"
        )
    return rows, refused


def checked(attention: str, options: AuditOptions) -> dict[str, Any]:
    """The composed configuration of a row with the recipe's own values. Raises LabError if it cannot run."""
    config = job_config([*row_words(attention, options), f"seed={options.tuning_seeds[0]}"])
    if config["selection"] == "best_test":
        raise ConfigError("selection=best_test: an audit scores the test set once; use best_val or last")
    if missing := missing_files(config):
        raise DataError("; ".join(missing))
    check_config(config)
    try:
        build_task(config, build_data(config).spec)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return config


def solve_widths(rows: Sequence[Row]) -> None:
    """Give each row the width with which it has the parameters of mha. Raises ConfigError if the subject cannot."""
    base = model_cost(checked(BASE, rows[0].options), "params")
    for row in rows:
        row.base_parameters = base
        try:
            solved = within_budget({**row.config, "budget": f"params:{BASE}"})
        except ConfigError as error:
            if row.attention == row.options.subject:
                raise
            row.refused["params"] = str(error)
            continue
        words = []
        for key in WIDTHS:
            node, _, option = key.partition(".")
            if (value := solved[node].get(option)) != row.config[node].get(option):
                words.append(f"{key}={value}")
        row.axis_words["params"] = tuple(words)
