"""Runs a comparison: declares it, tunes all rows alike, scores them with new seeds, and writes the page."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sliceformer_lab.cli.run_jobs import JobsInSteps
from sliceformer_lab.commands.compare.compare_options import CompareOptions
from sliceformer_lab.commands.compare.compare_page import send_page, write_page
from sliceformer_lab.commands.compare.compare_rows import ComparedRow, checked_rows, solve_ways
from sliceformer_lab.commands.compare.declaration import declare, default_margin, operator_digest, seeds_warning
from sliceformer_lab.commands.compare.equal_time import give_equal_time
from sliceformer_lab.commands.compare.examples import ExampleScores
from sliceformer_lab.commands.compare.results import Comparison
from sliceformer_lab.commands.compare.search import (
    MAX_GROWTHS,
    Point,
    Points,
    contested_points,
    first_points,
    sides_to_grow,
)
from sliceformer_lab.commands.compare.trials_of_rows import Tuning, best_way, check_one_data, data_of_runs, tuning_of
from sliceformer_lab.config.checked import RunPlan
from sliceformer_lab.errors import LabError, NoVerdictError
from sliceformer_lab.runs.files import write_json
from sliceformer_lab.runs.folder import lock_folder
from sliceformer_lab.runs.sources import digests_of, sources_of, sources_of_options
from sliceformer_lab.runs.sweep import PlannedJob, override_key
from sliceformer_lab.runs.tuned import BEST_FILE
from sliceformer_lab.sweeps.plan import named_modules
from sliceformer_lab.sweeps.queue import Launcher
from sliceformer_lab.training.goal import Goal, goal

RUNS, REPORT, TIMES = "runs", "report", "times.json"

log = logging.getLogger(__name__)


def run_comparison(word: str, options: CompareOptions, launcher: Launcher) -> None:
    """Run or continue a comparison and write its page; `word` is its command.

    Raises LabError; NoVerdictError if it ends without a verdict.
    """
    folder = Path(options.folder).expanduser().resolve()
    rows, refused = checked_rows(options)
    plan = rows[0].plan
    wanted, task, data = goal(plan), plan.names.task, sources_of(plan.plain)
    own_files: dict[str, str] = {}  # options and code of the user
    for row in rows:
        own_files |= sources_of_options(row.words, row.plan.plain)
    with lock_folder(folder):
        metric = f"test/{wanted.monitor}"
        margin = default_margin(options, task, metric)
        own = {row.name: row.own_rate for row in rows}
        facts = {"task": task, "own_rates": own, "data": digests_of(data)}
        facts |= {"own_files": digests_of(own_files)} if own_files else {}
        operators = {row.name: operator_digest(row.plan.plain["attention"]) for row in rows}
        declaration = declare(folder, word, options, metric, margin, facts, operators)
        log.info(
            f"{word}: {options.subject} against {', '.join(options.others) or 'nothing'}; declared as "
            f"{declaration['digest']} at {declaration['time']}\n"
            f"  in {folder}\n  if it is stopped, the same command goes on"
        )
        absent = [f"{name} takes no part: {why}" for name, why in refused.items()]
        for warning in (seeds_warning(options), *absent, *(row.contract_note for row in rows)):
            if warning:
                log.warning(f"WARNING: {warning}")
        parameters = solve_ways(rows) if "params" in options.axes else None
        times = give_equal_time(rows, folder / TIMES, options) if "time" in options.axes else None
        scores = ExampleScores(plan)
        modules = modules_of(row.plan for row in rows)
        jobs = JobsInSteps(word, folder / RUNS, launcher, modules, data | own_files, options.retry)
        runs = Rounds(rows, wanted, options, jobs, scores)
        tuning = runs.tune()
        ways = runs.choose_ways(tuning)
        if word == "tune":
            write_best(folder, tuning, rows, data_of_runs(folder / RUNS, task))
        runs.report_seeds(tuning)
        found = Comparison(
            *(word, folder / RUNS, options, declaration, wanted, margin, tuple(rows), refused),
            *(tuning, times, parameters, ways, scores),
        )
        write_page(found, folder / REPORT)
        send_page(found, folder / REPORT)
    if options.others and found.obstacle is not None:
        raise NoVerdictError(f"no verdict: {found.obstacle}")


def write_best(folder: Path, tuning: Tuning, rows: Sequence[ComparedRow], data: str | None) -> None:
    """Write best.json, the words of each row's chosen values on `data`, which optim=tuned:FOLDER/ATTENTION reads.

    A row that has not learned at any rate has no best values. Raises LabError if every trial of every row diverged.
    """
    given = [word for word in rows[0].options.words if override_key(word).split(".")[0] == "optim"]
    entries = {}
    for row in rows:
        if (best := tuning.chosen[row.name]) is not None and tuning.learned[row.name]:
            found = best.point.words(row.plan.plain["optim"])
            entries[row.name] = {"value": best.mean, "words": [*given, *found], "found": found}
    if not any(tuning.chosen.values()):
        raise LabError(f"every trial in {folder} diverged; try lower learning rates, as rates=[...] trials=0")
    not_learned = [row.name for row in rows if not tuning.learned[row.name]]
    write_json(folder / BEST_FILE, {"tuned_on": data, "attention": entries, "not_learned": not_learned})


@dataclass(frozen=True)
class Rounds:
    """The order of the runs: trials of all rows, growth, the deciding seed, ways to equal size, reporting seeds."""

    rows: Sequence[ComparedRow]
    goal: Goal
    options: CompareOptions
    jobs: JobsInSteps
    scores: ExampleScores

    def tune(self) -> Tuning:
        """Run all trials. Each growth brings the same new points to every row.

        Growth reads the tuning seeds only, so the same command, given again, finds the same points.
        """
        own = [row.own_rate for row in self.rows]
        points = first_points(self.options.rates, own, self.options.trials, self.options.search)
        self._run_trials(points.points)
        for _ in range(MAX_GROWTHS):
            tuning = self._read_tuning(points)
            learning = [row for row in self.rows if tuning.learned[row.name]]
            sides = sides_to_grow(points, [tuning.chosen[row.name] for row in learning])
            if not sides:
                break
            known, points = points.points, points.extended_beyond(sides)
            ends = " and the ".join(sides)
            log.info(f"{self.jobs.command}: a best rate is at the {ends} end, so every row gets more trials")
            self._run_trials([point for point in points.points if point not in known])
        self._decide_rates(self._read_tuning(points))
        return self._read_tuning(points, decided=True)

    def choose_ways(self, tuning: Tuning) -> dict[str, dict[str, float]]:
        """Try each row's ways to equal parameters at its chosen values, and give it the best one on validation."""
        several = {row: point for row, point in self._choose_reported_rows(tuning).items() if len(row.ways) > 1}
        seeds = self.options.tuning_seeds
        self._run_jobs(
            row.trial(point, seed, way) for row, point in several.items() for way in row.ways for seed in seeds
        )
        found = {}
        for row, point in several.items():
            row.axis_words["params"], found[row.name] = best_way(self.jobs.folder, row, point, self.goal)
        return found

    def report_seeds(self, tuning: Tuning) -> None:
        """Run the reporting seeds of each row and axis with the row's chosen values."""
        options, rows = self.options, self._choose_reported_rows(tuning)
        planned = [
            row.reporting(axis, point, seed)
            for axis in options.axes
            for seed in options.reporting_seeds
            for row, point in rows.items()
            if axis not in row.refused
        ]
        if options.untuned:
            planned += [row.reporting(options.axes[0], None, seed) for seed in options.reporting_seeds for row in rows]
        self._run_jobs(planned)

    def _choose_reported_rows(self, tuning: Tuning) -> dict[ComparedRow, Point]:
        """The rows that score the test set, with their chosen points: all that learn, if the subject learns."""
        subject, *others = self.rows
        learning = [row for row in others if tuning.learned[row.name] and row.name not in tuning.weaker]
        rows = [subject, *learning] if tuning.learned[subject.name] and (learning or not others) else []
        return {row: trial.point for row in rows if (trial := tuning.chosen[row.name])}

    def _decide_rates(self, tuning: Tuning) -> None:
        """Try the rates that the seeds of a row disagree on with a further seed."""
        jobs = [
            row.trial(point, self.options.deciding_seed)
            for row in self.rows
            if tuning.learned[row.name]
            for point in contested_points(tuning.trials[row.name], self.goal.sign, row.own_rate)
        ]
        self._run_jobs(jobs)

    def _read_tuning(self, points: Points, *, decided: bool = False) -> Tuning:
        return tuning_of(self.jobs.folder, self.rows, points, self.goal, self.scores, decided=decided)

    def _run_trials(self, points: Sequence[Point]) -> None:
        seeds = self.options.tuning_seeds
        self._run_jobs([row.trial(point, seed) for seed in seeds for point in points for row in self.rows])

    def _run_jobs(self, jobs: Iterable[PlannedJob]) -> None:
        self.jobs.run(jobs)
        check_one_data(self.jobs.folder)


def modules_of(plans: Iterable[RunPlan]) -> list[str]:
    """The modules that runs with these plans import."""
    return sorted({module for plan in plans for module in named_modules(plan.plain)})
