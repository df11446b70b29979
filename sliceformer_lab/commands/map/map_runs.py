"""Runs a map: learning rates one after the other, then the reporting seeds, then the report. It can stop anywhere."""

from __future__ import annotations

import logging
from pathlib import Path

from sliceformer_lab.cli.run_jobs import JobsInSteps
from sliceformer_lab.commands.compare.declaration import PROTOCOL, record_plan
from sliceformer_lab.commands.compare.search import contested_points
from sliceformer_lab.commands.compare.steps import REPORT, RUNS, modules_of
from sliceformer_lab.commands.map.cells import Cell, checked_cells
from sliceformer_lab.commands.map.map_options import MapOptions
from sliceformer_lab.commands.map.map_results import Map, Result, read_result
from sliceformer_lab.commands.map.write_map import write_map
from sliceformer_lab.runs.folder import lock_folder
from sliceformer_lab.sweeps.queue import Launcher

PLAN = "map.json"

log = logging.getLogger(__name__)


def run(options: MapOptions, launcher: Launcher) -> None:
    """Run or continue a map, and write its report, also after a signal. Raises LabError."""
    folder = Path(options.folder).expanduser().resolve()
    cells, configs = checked_cells(options)
    with lock_folder(folder):
        record_plan(folder / PLAN, _facts(options), {})
        _announce(options, cells, folder)
        jobs = JobsInSteps("map", folder / RUNS, launcher, modules_of(configs), {}, options.retry)
        try:
            _run_rounds(options, cells, folder / RUNS, jobs)
        finally:  # a map that is stopped shows what it has
            results = {(cell.attention, cell.probe): read_result(folder / RUNS, cell) for cell in cells}
            write_map(Map(options, results), folder / REPORT)


def _announce(options: MapOptions, cells: list[Cell], folder: Path) -> None:
    for cell in cells:
        if cell.refused:
            log.warning(f"{cell.attention} on {cell.probe} stays empty: {cell.refused}")
    count = sum(cell.refused is None for cell in cells)
    fewest, most = (count * number for number in runs_of_a_cell(options))
    log.info(
        f"map: {count} cells in {folder}: {fewest} to {most} runs in rounds, fewer if the first "
        "rates solve the probes; if it is stopped, the same command goes on"
    )


def runs_of_a_cell(options: MapOptions) -> tuple[int, int]:
    """The fewest and the most runs: the first rate solves the probe, or all are tried and a further seed decides."""
    seeds, rates = len(options.tuning_seeds), len(options.rates) + (options.edge_rate is not None)
    return seeds + options.seeds, (seeds + 1) * rates + options.seeds


def _run_rounds(options: MapOptions, cells: list[Cell], runs: Path, jobs: JobsInSteps) -> None:
    """Try a learning rate of all cells at a time until each has solved its probe or has none left.

    Then a further seed decides where two disagree, and the reporting seeds run, a seed of all cells at a time.
    """

    def results() -> list[Result]:
        return [read_result(runs, cell) for cell in cells]

    while wanted := [(one.cell, rate) for one in results() if (rate := one.next_rate) is not None]:
        jobs.run(cell.job(rate, seed) for seed in options.tuning_seeds for cell, rate in wanted)
    jobs.run(
        one.cell.job(point.rate, options.deciding_seed)
        for one in results()
        for point in contested_points(one.trials, 1.0, options.rates[0])
    )
    chosen = [(one.cell, one.rate) for one in results() if one.rate is not None]
    jobs.run(cell.job(rate, seed) for seed in options.reporting_seeds for cell, rate in chosen)


def _facts(options: MapOptions) -> dict[str, object]:
    """What the runs of a map share; it grows by attentions, probes and seeds."""
    return {
        "protocol": PROTOCOL,
        "rates": list(options.rates),
        "edge_rate": options.edge_rate,
        "seed": options.seed,
        "words": sorted(word for word in options.words if not word.startswith("paths.")),
    }
