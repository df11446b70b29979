"""Runs a map: learning rates one after the other, then the reporting seeds, then the report. It can stop anywhere."""

from __future__ import annotations

import logging
from pathlib import Path

from sliceformer_lab.cli.run_jobs import JobsInSteps
from sliceformer_lab.commands.compare.declaration import PROTOCOL, record_plan
from sliceformer_lab.commands.compare.search import Trial, chosen_trial, contested_points
from sliceformer_lab.commands.map.cells import Cell, checked_cells, next_rate
from sliceformer_lab.commands.map.map_options import MapOptions
from sliceformer_lab.commands.map.map_results import read_map, tried_rates
from sliceformer_lab.commands.map.write_map import write_map
from sliceformer_lab.runs.folder import lock_folder
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
        record_plan(folder / PLAN, _facts(options), {})
        for cell, reason in empty.items():
            log.warning(f"{cell.attention} on {cell.probe} stays empty: {reason}")
        fewest, most = (count * (len(cells) - len(empty)) for count in runs_of_a_cell(options))
        log.info(
            f"map: {len(cells) - len(empty)} cells in {folder}: {fewest} to {most} runs in rounds, fewer if the first "
            "rates solve the probes; if it is stopped, the same command goes on"
        )
        chances = {cell: floors[cell.probe].chance for cell in cells if cell not in empty}
        jobs = JobsInSteps("map", folder / RUNS, launcher, modules, {}, options.retry)
        try:
            _choose_rates(folder / RUNS, chances, options, jobs)
            _report_seeds(folder / RUNS, chances, options, jobs)
        finally:  # a map that is stopped shows what it has
            write_map(read_map(folder / RUNS, options, cells, empty, floors), folder / REPORT)


def runs_of_a_cell(options: MapOptions) -> tuple[int, int]:
    """The fewest and the most runs: the first rate solves the probe, or all are tried and a further seed decides."""
    seeds, rates = len(options.tuning_seeds), len(options.rates) + (options.edge_rate is not None)
    return seeds + options.seeds, (seeds + 1) * rates + options.seeds


def _choose_rates(folder: Path, chances: dict[Cell, float], options: MapOptions, jobs: JobsInSteps) -> None:
    """Try a learning rate of all cells at a time until each has solved its probe or has none left.

    A further seed decides where two disagree.
    """

    def trials() -> dict[Cell, list[Trial]]:
        return {cell: tried_rates(folder, cell, chance) for cell, chance in chances.items()}

    while wanted := {
        cell: rate
        for cell, tried in trials().items()
        if (rate := next_rate(tried, options.rates, options.edge_rate)) is not None
    }:
        jobs.run([cell.tuning(rate, seed) for seed in options.tuning_seeds for cell, rate in wanted.items()])
    jobs.run(
        [
            cell.tuning(point.rate, options.deciding_seed)
            for cell, tried in trials().items()
            for point in contested_points(tried, 1.0, options.rates[0])
        ]
    )


def _report_seeds(folder: Path, chances: dict[Cell, float], options: MapOptions, jobs: JobsInSteps) -> None:
    """Run the reporting seeds of each cell with its learning rate, a seed of all cells at a time."""
    best = {
        cell: chosen_trial(tried_rates(folder, cell, chance), 1.0, options.rates[0]) for cell, chance in chances.items()
    }
    jobs.run(
        [
            cell.reporting(trial.point.rate, seed)
            for seed in options.reporting_seeds
            for cell, trial in best.items()
            if trial is not None
        ]
    )


def _facts(options: MapOptions) -> dict[str, object]:
    """What the runs of a map share; it grows by attentions, probes and seeds."""
    return {
        "protocol": PROTOCOL,
        "rates": list(options.rates),
        "edge_rate": options.edge_rate,
        "seed": options.seed,
        "words": sorted(word for word in options.words if not word.startswith("paths.")),
    }
