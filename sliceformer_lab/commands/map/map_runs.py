"""Runs a map: the next runs of all cells, round by round, then the report. It can stop anywhere."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from sliceformer_lab.cli.run_jobs import JobsInSteps
from sliceformer_lab.cli.run_sweep import measure_job
from sliceformer_lab.commands.compare.declaration import operator_digest
from sliceformer_lab.commands.compare.steps import REPORT, RUNS, modules_of
from sliceformer_lab.commands.compare.trials_of_rows import check_one_data
from sliceformer_lab.commands.map.cells import Cell, checked_cells
from sliceformer_lab.commands.map.map_options import MapOptions
from sliceformer_lab.commands.map.map_results import Map, Result, read_result
from sliceformer_lab.commands.map.write_map import send_map, write_map
from sliceformer_lab.runs.folder import lock_folder
from sliceformer_lab.runs.plain_text import counted
from sliceformer_lab.runs.recorded_plan import record_plan
from sliceformer_lab.runs.sources import sources_of_options
from sliceformer_lab.sweeps.estimate import find_costs, format_duration
from sliceformer_lab.sweeps.queue import Launcher

PLAN = "map.json"
PROTOCOL = 4  # folders of another protocol are refused

log = logging.getLogger(__name__)


def run_map(options: MapOptions, launcher: Launcher) -> None:
    """Run or continue a map, and write its report, also after a signal. Raises LabError."""
    folder = Path(options.folder).expanduser().resolve()
    cells, plans = checked_cells(options)
    with lock_folder(folder):
        operators = {plan.names.attention: operator_digest(plan.plain["attention"]) for plan in plans}
        own: dict[str, str] = {}  # files of options and code of the user
        for cell, plan in zip((cell for cell in cells if cell.refused is None), plans, strict=True):
            own |= sources_of_options(cell.words, plan.plain)
        record_plan(folder / PLAN, _declare_facts(options), {}, operators)
        for cell in cells:
            if cell.refused:
                log.warning(f"{cell.attention} on {cell.probe} stays empty: {cell.refused}")
        count = sum(cell.refused is None for cell in cells)
        log.info(f"map: {count} cells in {folder}, in rounds; if it is stopped, the same command goes on")
        try:
            run_rounds(cells, JobsInSteps("map", folder / RUNS, launcher, modules_of(plans), own, options.retry))
        finally:  # a map that is stopped shows what it has
            results = read_results(folder / RUNS, cells)
            found = Map(options, {(one.cell.attention, one.cell.probe): one for one in results})
            write_map(found, folder / REPORT)
        send_map(found, folder / REPORT, plans[0].plain["logger"])


def run_rounds(cells: Sequence[Cell], jobs: JobsInSteps) -> None:
    """Run what each cell needs next, a learning rate or its reporting seeds, until no cell needs anything."""
    number, results = 0, read_results(jobs.folder, cells)
    while wanted := [job for one in results for job in one.next_jobs]:
        number += 1
        left = _estimate_rest(results, jobs, is_first=number == 1)
        log.info(f"map, round {number}: {counted(len(wanted), 'run')}; {left} left with it")
        jobs.run(wanted)
        results = read_results(jobs.folder, cells)


def read_results(folder: Path, cells: Sequence[Cell]) -> list[Result]:
    """What the runs say about each cell. Raises DataError if runs of one probe have different examples."""
    for probe in dict.fromkeys(cell.probe for cell in cells):
        check_one_data(folder, f"{probe}-")
    return [read_result(folder, cell) for cell in cells]


def _estimate_rest(results: Sequence[Result], jobs: JobsInSteps, *, is_first: bool) -> str:
    """The fewest and the most runs of all rounds that are left, and their time where it is known.

    A run takes as long as those of its cell took. Before the first round a few steps on each probe say it.
    """
    open_cells = [one for one in results if one.next_jobs]
    trials = [one.cell.job(one.cell.options.rates[0], one.cell.options.seed) for one in open_cells]
    left = {trial: one.runs_left for trial, one in zip(trials, open_cells, strict=True)}
    measure = measure_job if jobs.launcher.measures and is_first else None
    asked = {one.cell.probe: trial for trial, one in zip(trials, open_cells, strict=True)} if measure else {}
    costs = find_costs([*asked.values()] or trials, jobs.folder, measure, jobs.modules)
    numbers, times = [], []  # the fewest and the most
    for ends in zip(*left.values(), strict=True):
        numbers.append(str(sum(ends)))
        if costs is not None:
            seconds = sum(count * costs.total([job])[0] for count, job in zip(ends, left, strict=True))
            times.append(format_duration(seconds / max(1, min(jobs.launcher.places, sum(ends)))))
    runs, time = (" to ".join(dict.fromkeys(ends)) for ends in (numbers, times))
    return f"{runs} runs" + (f", about {time}," if time else "")


def _declare_facts(options: MapOptions) -> dict[str, object]:
    """What the runs of a map share; it grows by attentions, probes and seeds."""
    return {
        "protocol": PROTOCOL,
        "rates": list(options.rates),
        "seed": options.seed,
        "words": sorted(word for word in options.words if not word.startswith("paths.")),
    }
