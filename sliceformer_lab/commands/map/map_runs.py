"""Runs a map: learning rates one after the other, then the reporting seeds, then the report. It can stop anywhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from sliceformer_lab.cli.run_jobs import JobsInSteps
from sliceformer_lab.commands.compare.declaration import PROTOCOL, check_protocol
from sliceformer_lab.commands.compare.search import Trial, chosen_trial, contested_points
from sliceformer_lab.commands.map.cells import Cell, Floors, checked_cells, next_rate
from sliceformer_lab.commands.map.map_options import MapOptions
from sliceformer_lab.commands.map.map_results import read_map, tried_rates
from sliceformer_lab.commands.map.write_map import write_map
from sliceformer_lab.runs.files import write_json
from sliceformer_lab.runs.folder import lock_folder
from sliceformer_lab.runs.job_state import state_of
from sliceformer_lab.runs.recorded_plan import read_same_plan
from sliceformer_lab.runs.sweep import PlannedJob
from sliceformer_lab.sweeps.plan import named_modules
from sliceformer_lab.sweeps.queue import Launcher

PLAN, RUNS, REPORT = "map.json", "runs", "report"

log = logging.getLogger(__name__)


def run(options: MapOptions, launcher: Launcher) -> None:
    """Run or continue a map, and write its report, also after a signal. Raises LabError."""
    folder = Path(options.folder).expanduser().resolve()
    cells, empty, floors, configs = checked_cells(options)
    modules = sorted({module for config in configs for module in named_modules(config)})
    with lock_folder(folder):
        _write_plan(folder, options)
        for cell, reason in empty.items():
            log.warning(f"{cell.attention} on {cell.probe} stays empty: {reason}")
        log.info(f"map: {len(cells) - len(empty)} cells in {folder}; if it is stopped, the same command goes on")
        filled = [cell for cell in cells if cell not in empty]
        jobs = JobsInSteps(folder / RUNS, launcher, modules, {}, options.retry)
        runs = MapRuns(folder / RUNS, filled, floors, options, jobs)
        try:
            runs.choose_rates()
            runs.report_seeds()
        finally:  # a map that is stopped shows what it has
            write_map(read_map(folder / RUNS, options, cells, empty, floors), folder / REPORT)


class MapRuns:
    """The order of the runs: a learning rate of all cells at a time, then the deciding seed, then the reporting seeds.

    Each step is announced with the range of runs and of time that the whole map still needs.
    """

    def __init__(
        self, folder: Path, cells: Sequence[Cell], floors: Mapping[str, Floors], options: MapOptions, jobs: JobsInSteps
    ) -> None:
        self._folder, self._cells, self._floors, self._options, self._jobs = folder, cells, floors, options, jobs
        self._done, self._seconds = 0, 0.0

    def choose_rates(self) -> None:
        """Try learning rates until each cell has solved its probe or has none left; a further seed decides."""
        tuning = self._options.tuning_seeds
        while wanted := {cell: rate for cell in self._cells if (rate := self._next(cell)) is not None}:
            self._run([cell.tuning(rate, seed) for seed in tuning for cell, rate in wanted.items()])
        self._run(
            [
                cell.tuning(point.rate, self._options.deciding_seed)
                for cell in self._cells
                for point in contested_points(self._trials(cell), 1.0, self._options.rates[0])
            ]
        )

    def report_seeds(self) -> None:
        """Run the reporting seeds of each cell with its learning rate, a seed of all cells at a time."""
        best = {cell: chosen_trial(self._trials(cell), 1.0, self._options.rates[0]) for cell in self._cells}
        self._run(
            [
                cell.reporting(trial.point.rate, seed)
                for seed in self._options.reporting_seeds
                for cell, trial in best.items()
                if trial is not None
            ]
        )

    def runs_left(self) -> tuple[int, int]:
        """The fewest and the most runs that are left, if all cells solve their probe at the next rate, or none does."""
        options = self._options
        fewest = most = 0
        for cell in self._cells:
            tried = len(self._trials(cell))
            rates = len(options.rates) + (options.edge_rate is not None)
            is_open = self._next(cell) is not None
            reporting = sum(
                not state_of(self._folder / cell.reporting(trial.point.rate, seed).name).is_final
                for trial in [chosen_trial(self._trials(cell), 1.0, options.rates[0])]
                if trial is not None and not is_open
                for seed in options.reporting_seeds
            )
            seeds = len(options.tuning_seeds)
            fewest += seeds + options.seeds if is_open else reporting
            most += (seeds + 1) * (rates - tried) + options.seeds if is_open else reporting
        return fewest, most

    def _run(self, jobs: Sequence[PlannedJob]) -> None:
        """Run a step. Raises LabError if some runs have failed: a failed run is neither a score nor chance."""
        left = sum(not state_of(self._folder / job.name).is_final for job in jobs)
        if left:
            fewest, most = self.runs_left()
            each = self._seconds / self._done if self._done else None
            time_left = "" if each is None else f", {_duration(fewest * each)} to {_duration(most * each)}"
            log.info(f"map: {left} runs in this step; {fewest} to {most} runs are left in all{time_left}")
        started = time.monotonic()
        self._jobs.run(jobs)
        self._seconds, self._done = self._seconds + time.monotonic() - started, self._done + left
        self._jobs.check_failures("map")

    def _trials(self, cell: Cell) -> list[Trial]:
        return tried_rates(self._folder, cell, self._floors[cell.probe].chance)

    def _next(self, cell: Cell) -> float | None:
        return next_rate(self._trials(cell), self._options.rates, self._options.edge_rate)


def _duration(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{max(1, round(seconds / 60))} min"


def _write_plan(folder: Path, options: MapOptions) -> None:
    """Write map.json, or find that it is of the same runs. Raises ConfigError."""
    file = folder / PLAN
    words = sorted(word for word in options.words if not word.startswith("paths."))
    plan = {
        "protocol": PROTOCOL,
        "rates": list(options.rates),
        "edge_rate": options.edge_rate,
        "seed": options.seed,
        "words": words,
    }
    if file.exists():
        check_protocol(file, "map")
        read_same_plan(file, plan, "a map")
    else:
        write_json(file, plan)
