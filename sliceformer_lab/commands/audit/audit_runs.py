"""Runs an audit: declares it, tunes all rows alike, scores them with new seeds, and writes the page."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path

from sliceformer_lab.cli.run_jobs import JobsInSteps
from sliceformer_lab.commands.audit.audit_options import BASE, AuditOptions
from sliceformer_lab.commands.audit.audit_results import Audit
from sliceformer_lab.commands.audit.audit_rows import Row, checked, checked_rows, solve_widths
from sliceformer_lab.commands.audit.declaration import declare, default_margin, seeds_warning
from sliceformer_lab.commands.audit.step_times import Times, measure, time_words
from sliceformer_lab.commands.audit.trial_points import MOST_GROWTHS, Points, first_points, sides_to_grow
from sliceformer_lab.commands.audit.tuning_results import Tuning, tuning_of
from sliceformer_lab.commands.audit.write_audit import write_audit
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.errors import NoVerdictError
from sliceformer_lab.runs.files import write_json
from sliceformer_lab.runs.folder import lock_folder
from sliceformer_lab.sweeps.plan import named_modules
from sliceformer_lab.sweeps.queue import Launcher
from sliceformer_lab.training.goal import Goal, goal

RUNS, REPORT, TIMES = "runs", "report", "times.json"

log = logging.getLogger(__name__)


def run(options: AuditOptions, launcher: Launcher) -> None:
    """Run or continue an audit and write its page. Raises LabError; NoVerdictError if it ends without a verdict."""
    folder = Path(options.folder).expanduser().resolve()
    rows, refused = checked_rows(options)
    wanted, task = goal(rows[0].config), str(rows[0].config["names"]["task"])
    with lock_folder(folder):
        metric = f"test/{wanted.monitor}"
        margin = default_margin(options, task, metric)
        declaration = declare(folder, options, task, metric, margin)
        log.info(
            f"audit: {options.subject} against {', '.join(options.against)}; declared as {declaration.digest} at "
            f"{declaration.time}\n  in {folder}\n  if it is stopped, the same command goes on"
        )
        for warning in (seeds_warning(options), *(f"{name} takes no part: {why}" for name, why in refused.items())):
            if warning:
                log.warning(f"WARNING: {warning}")
        if "params" in options.axes:
            solve_widths(rows)
        times = _equal_times(rows, folder, options) if "time" in options.axes else None
        runs = AuditRuns(folder / RUNS, rows, wanted, options, launcher)
        points = runs.tune()
        tuning = tuning_of(folder / RUNS, rows, points, wanted)
        audit = Audit(folder / RUNS, options, declaration, wanted, margin, tuple(rows), refused, tuning, times)
        try:
            runs.report_seeds(tuning)
        finally:  # what a stopped audit has scored is scored
            audit.record_evaluations()
        write_audit(audit, folder / REPORT)
    if audit.obstacle is not None:
        raise NoVerdictError(f"no verdict: {audit.obstacle}")


class AuditRuns:
    """The order of the runs: the trials of all rows, growth of their list, then the reporting seeds of all rows."""

    def __init__(
        self, folder: Path, rows: Sequence[Row], wanted: Goal, options: AuditOptions, launcher: Launcher
    ) -> None:
        self._folder, self._rows, self._goal, self._options = folder, rows, wanted, options
        modules = sorted({module for row in rows for module in named_modules(row.config)})
        self._jobs = JobsInSteps(folder, launcher, modules)

    def tune(self) -> Points:
        """Run all trials, and return their list of points. Each growth brings the same new points to every row."""
        points = first_points(self._options.rates, self._options.trials)
        self._run_trials(points)
        for _ in range(MOST_GROWTHS):
            tuning = tuning_of(self._folder, self._rows, points, self._goal)
            sides = sides_to_grow(points, list(tuning.trials.values()), self._goal.sign)
            if not sides:
                break
            points = points.grown(sides)
            log.info(
                f"audit: a best learning rate is at the {' and the '.join(sides)} end, so every row gets more trials"
            )
            self._run_trials(points)
        return points

    def report_seeds(self, tuning: Tuning) -> None:
        """Run the reporting seeds of each row and axis with the row's chosen values."""
        self._jobs.run(
            [
                row.reporting(axis, trial.point, seed)
                for axis in self._options.axes
                for seed in self._options.reporting_seeds
                for row in self._rows
                if (trial := tuning.chosen[row.attention]) is not None and axis not in row.refused
            ]
        )

    def _run_trials(self, points: Points) -> None:
        self._jobs.run(
            [
                row.trial(point, seed)
                for seed in self._options.tuning_seeds
                for point in points.points
                for row in self._rows
            ]
        )


def _equal_times(rows: Sequence[Row], folder: Path, options: AuditOptions) -> Times:
    """Measure the rows once, and give each the steps of its axis. Raises ConfigError on a noisy machine."""
    file = folder / TIMES
    times = _read_times(file)
    if times is None or any(row.attention not in times.rows for row in rows):
        log.info("audit: measuring the training steps of all rows in turns")
        times = measure({BASE: checked(BASE, options), **{row.attention: row.config for row in rows}})
    if times.noise is not None and not options.force_time:
        raise ConfigError(
            f"axes=time: {times.noise}; use a quieter machine, or go on with force_time=true, which is recorded, or "
            "with axes=params"
        )
    write_json(file, times.as_json())
    for row in rows:
        steps, _ = times.steps_of(row.attention)
        optim = row.config["optim"]
        as_planned = row.attention == BASE and optim["interval"] == "step"
        own = () if as_planned else time_words(optim, steps, times.steps, times.steps_per_epoch)
        row.axis_words["time"] = own
    return times


def _read_times(file: Path) -> Times | None:
    try:
        return Times.from_json(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
