"""Runs a map: learning rates one after the other, then the reporting seeds, then the report. It can stop anywhere."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path

from sliceformer_lab.cli.run_jobs import run_jobs
from sliceformer_lab.commands.map.cells import Cell, best_rate, checked_cells, next_rate
from sliceformer_lab.commands.map.map_options import MapOptions
from sliceformer_lab.commands.map.map_results import read_map, tried_rates
from sliceformer_lab.commands.map.write_map import write_map
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.errors import LabError
from sliceformer_lab.runs.files import write_json
from sliceformer_lab.runs.folder import lock_folder
from sliceformer_lab.runs.job_state import refuse, state_of
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
        self._launcher, self._modules = launcher, modules
        self._planned: dict[str, PlannedJob] = {}

    def choose_rates(self) -> None:
        """Try learning rates until each cell has solved its probe or has none left."""
        while jobs := [cell.tuning(rate) for cell in self._cells if (rate := self._next(cell)) is not None]:
            self._run(jobs)

    def report_seeds(self) -> None:
        """Run the reporting seeds of each cell with its learning rate, a seed of all cells at a time."""
        rates = {cell: best_rate(tried_rates(self._folder, cell)) for cell in self._cells}
        self._run(
            [
                cell.reporting(rate, seed)
                for seed in self._options.reporting_seeds
                for cell, rate in rates.items()
                if rate is not None
            ]
        )

    def _next(self, cell: Cell) -> float | None:
        return next_rate(tried_rates(self._folder, cell), self._options.rates, self._options.edge_rate)

    def _run(self, jobs: Sequence[PlannedJob]) -> None:
        self._planned |= {job.name: job for job in jobs}
        if left := [job for job in jobs if not state_of(self._folder / job.name).is_final]:
            ends = run_jobs(self._folder, list(self._planned.values()), left, self._launcher, self._modules)
            for name in [name for name, state in ends.items() if not state.is_final]:
                refuse(self._folder / name, LabError("its process died twice"))


def _write_plan(folder: Path, options: MapOptions) -> None:
    """Write map.json, or find that it is of the same runs. Raises ConfigError."""
    file = folder / PLAN
    words = sorted(word for word in options.words if not word.startswith("paths."))
    plan = {"rates": list(options.rates), "edge_rate": options.edge_rate, "seed": options.seed, "words": words}
    if file.exists():
        try:
            there = json.loads(file.read_text(encoding="utf-8"))
            changed = sorted(key for key in plan if there[key] != plan[key])
        except (OSError, ValueError, RecursionError, TypeError, KeyError) as error:
            raise ConfigError(f"{file} cannot be read as the plan of a map ({error})") from error
        if changed:
            raise ConfigError(f"{folder} holds a map that differs in {', '.join(changed)}; choose another folder=")
    write_json(file, plan)
