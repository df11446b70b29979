"""Runs a map: learning rates one after the other, then the reporting seeds, then the report. It can stop anywhere."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sliceformer_lab.cli.run_jobs import JobsInSteps
from sliceformer_lab.cli.run_sweep import measure_job
from sliceformer_lab.commands.compare.declaration import PROTOCOL, operator_digest
from sliceformer_lab.commands.compare.steps import REPORT, RUNS, modules_of
from sliceformer_lab.commands.map.cells import Cell, checked_cells
from sliceformer_lab.commands.map.map_options import MapOptions
from sliceformer_lab.commands.map.map_results import Map, Result, read_result
from sliceformer_lab.commands.map.write_map import send_map, write_map
from sliceformer_lab.runs.folder import lock_folder
from sliceformer_lab.runs.job_state import state_of
from sliceformer_lab.runs.recorded_plan import record_plan
from sliceformer_lab.runs.sweep import PlannedJob
from sliceformer_lab.sweeps.estimate import find_costs, format_duration
from sliceformer_lab.sweeps.queue import Launcher

PLAN = "map.json"

log = logging.getLogger(__name__)


def run(options: MapOptions, launcher: Launcher) -> None:
    """Run or continue a map, and write its report, also after a signal. Raises LabError."""
    folder = Path(options.folder).expanduser().resolve()
    cells, plans = checked_cells(options)
    with lock_folder(folder):
        operators = {plan.names.attention: operator_digest(plan.plain["attention"]) for plan in plans}
        record_plan(folder / PLAN, _facts(options), {}, operators)
        _announce(cells, folder)
        try:
            jobs = JobsInSteps("map", folder / RUNS, launcher, modules_of(plans), {}, options.retry)
            MapRounds(options, cells, jobs).run()
        finally:  # a map that is stopped shows what it has
            results = {(cell.attention, cell.probe): read_result(folder / RUNS, cell) for cell in cells}
            found = Map(options, results)
            write_map(found, folder / REPORT)
        send_map(found, folder / REPORT, plans[0].plain["logger"])


def _announce(cells: list[Cell], folder: Path) -> None:
    for cell in cells:
        if cell.refused:
            log.warning(f"{cell.attention} on {cell.probe} stays empty: {cell.refused}")
    count = sum(cell.refused is None for cell in cells)
    log.info(f"map: {count} cells in {folder}, in rounds; if it is stopped, the same command goes on")


@dataclass
class MapRounds:
    """The order of the runs: a learning rate of all cells at a time, a deciding seed, then the reporting seeds."""

    options: MapOptions
    cells: Sequence[Cell]
    jobs: JobsInSteps
    number: int = field(default=0, init=False)  # of rounds that began

    def run(self) -> None:
        """Try learning rates of all cells until each can choose; then the other seeds.

        A further seed decides where two disagree.
        """
        options = self.options
        while wanted := [(one.cell, *trial) for one in self._results() if (trial := one.next_trial) is not None]:
            self._run([cell.job(rate, seed) for cell, rate, seed in wanted])
        results = self._results()
        self._run([one.cell.job(rate, options.deciding_seed) for one in results for rate in one.contested_rates])
        chosen = [(one.cell, one.rate) for one in self._results() if one.rate is not None]
        self._run([cell.job(rate, seed) for seed in options.reporting_seeds for cell, rate in chosen])

    def _results(self) -> list[Result]:
        return [read_result(self.jobs.folder, cell) for cell in self.cells]

    def _run(self, jobs: Sequence[PlannedJob]) -> None:
        if left := sum(not state_of(self.jobs.folder / job.name).is_final for job in jobs):
            self.number += 1
            runs = "1 run" if left == 1 else f"{left} runs"
            log.info(f"map, round {self.number}: {runs}; {self._rest()} left with it")
        self.jobs.run(jobs)

    def _rest(self) -> str:
        """The fewest and the most runs of all rounds that are left, and their time where it is known.

        A run takes as long as those of its cell took, or as a few steps say before the first round.
        """
        options = self.options
        left = {one.cell: one.runs_left for one in self._results() if one.cell.refused is None}
        trials = [cell.job(options.rates[0], options.seed) for cell in left]
        measure = measure_job if self.jobs.launcher.measures and self.number == 1 else None
        costs = find_costs(trials, self.jobs.folder, measure, self.jobs.modules)
        numbers, times = [], []
        for ends in zip(*left.values(), strict=True):
            numbers.append(str(sum(ends)))
            if costs is not None:
                seconds = sum(n * costs.total([job])[0] for n, job in zip(ends, trials, strict=True))
                times.append(format_duration(seconds / max(1, min(self.jobs.launcher.places, sum(ends)))))
        return f"{_range(numbers)} runs" + (f", about {_range(times)}," if times else "")


def _range(ends: Sequence[str]) -> str:
    """`fewest to most`, or one of them if they are equal."""
    return " to ".join(dict.fromkeys(ends))


def _facts(options: MapOptions) -> dict[str, object]:
    """What the runs of a map share; it grows by attentions, probes and seeds."""
    return {
        "protocol": PROTOCOL,
        "rates": list(options.rates),
        "edge_rate": options.edge_rate,
        "seed": options.seed,
        "words": sorted(word for word in options.words if not word.startswith("paths.")),
    }
