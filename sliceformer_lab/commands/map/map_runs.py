"""Runs a map: learning rates one after the other, then the reporting seeds, then the report. It can stop anywhere."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from sliceformer_lab.cli.run_jobs import JobsInSteps
from sliceformer_lab.commands.map.cells import Cell, best_rate, checked_cells, next_rate
from sliceformer_lab.commands.map.map_options import MapOptions
from sliceformer_lab.commands.map.map_results import read_map, tried_rates
from sliceformer_lab.commands.map.write_map import write_map
from sliceformer_lab.runs.files import write_json
from sliceformer_lab.runs.folder import lock_folder
from sliceformer_lab.runs.recorded_plan import read_same_plan
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
        runs = MapRuns(folder / RUNS, filled, options, launcher, modules)
        try:
            runs.choose_rates()
            runs.report_seeds()
        finally:  # a map that is stopped shows what it has
            write_map(read_map(folder / RUNS, options, cells, empty, floors), folder / REPORT)


class MapRuns:
    """The order of the runs: a learning rate of all cells at a time, then the reporting seeds of all cells."""

    def __init__(
        self, folder: Path, cells: Sequence[Cell], options: MapOptions, launcher: Launcher, modules: Sequence[str]
    ) -> None:
        self._folder, self._cells, self._options = folder, cells, options
        self._jobs = JobsInSteps(folder, launcher, modules)

    def choose_rates(self) -> None:
        """Try learning rates until each cell has solved its probe or has none left."""
        while jobs := [cell.tuning(rate) for cell in self._cells if (rate := self._next(cell)) is not None]:
            self._jobs.run(jobs)

    def report_seeds(self) -> None:
        """Run the reporting seeds of each cell with its learning rate, a seed of all cells at a time."""
        rates = {cell: best_rate(tried_rates(self._folder, cell)) for cell in self._cells}
        self._jobs.run(
            [
                cell.reporting(rate, seed)
                for seed in self._options.reporting_seeds
                for cell, rate in rates.items()
                if rate is not None
            ]
        )

    def _next(self, cell: Cell) -> float | None:
        return next_rate(tried_rates(self._folder, cell), self._options.rates, self._options.edge_rate)


def _write_plan(folder: Path, options: MapOptions) -> None:
    """Write map.json, or find that it is of the same runs. Raises ConfigError."""
    file = folder / PLAN
    words = sorted(word for word in options.words if not word.startswith("paths."))
    plan = {"rates": list(options.rates), "edge_rate": options.edge_rate, "seed": options.seed, "words": words}
    if file.exists():
        read_same_plan(file, plan, "a map")
    else:
        write_json(file, plan)
