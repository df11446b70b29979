"""Estimates time and disk of a sweep before it starts: from finished runs of the same kind, or from a few steps."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path

from sliceformer_lab.runs.collect import walk_runs
from sliceformer_lab.runs.folder import SUMMARY, known_summary
from sliceformer_lab.runs.resume import may_change
from sliceformer_lab.runs.sweep import PlannedJob, override_key
from sliceformer_lab.sweeps.fork_server import begin_job, can_fork, fork_server, hidden_main
from sliceformer_lab.sweeps.queue import print_to

Words = tuple[str, ...]
JobKind = Words  # the words that decide the cost of a job
JobCost = tuple[float, int]  # seconds and bytes
Measure = Callable[[Sequence[str]], JobCost]

# keys that no kind has
FREE_KEYS = ("seed", "data.split_seed", "optim.lr", "optim.weight_decay", "study", "trainer")
MIN_MEASURED_JOBS = 4  # jobs; the cost of fewer is not measured
MEASURING_LIMIT_S = 30.0  # seconds for all measurements
MAX_PAST_RUNS = 2000  # finished runs to look at
GB = 1e9


@dataclass(frozen=True)
class Costs:
    """What jobs cost, by their kind: at least one of them is known."""

    known: dict[JobKind, JobCost]
    from_runs: int  # kinds that finished runs say; the others were measured by a few steps

    def total(self, jobs: Iterable[PlannedJob]) -> JobCost:
        """Seconds one after the other, and bytes; a kind that is not known costs the mean and the largest size."""
        usual = statistics.mean(seconds for seconds, _ in self.known.values()), max(s for _, s in self.known.values())
        found = [self.known.get(_kind_of(job.words), usual) for job in jobs]
        return sum(seconds for seconds, _ in found), sum(size for _, size in found)


def find_costs(
    jobs: Sequence[PlannedJob], outputs: Path, measure: Measure | None, modules: Sequence[str]
) -> Costs | None:
    """The costs of jobs from finished runs below `outputs` and from `measure`; None if nothing is known.

    `measure` runs a few steps of a job; None if that says nothing here. `modules` are what the jobs import.
    """
    unknown = {_kind_of(job.words): job.words for job in jobs}
    costs = _read_finished_costs(outputs, set(unknown))
    from_runs = len(costs)
    for kind in costs:
        del unknown[kind]
    if unknown and measure is not None and can_fork():
        costs |= _measure_costs(unknown, measure, modules)
    return Costs(costs, from_runs) if costs else None


def estimate_sweep(
    jobs: Sequence[PlannedJob], outputs: Path, places: int, measure: Measure | None, modules: Sequence[str]
) -> list[str]:
    """Lines on the time and disk that jobs need; `places` is how many of them run at once."""
    costs = find_costs(jobs, outputs, measure if len(jobs) >= MIN_MEASURED_JOBS else None, modules)
    if costs is None:
        return []
    seconds, size = costs.total(jobs)
    known, from_runs = len(costs.known), costs.from_runs
    sources = [f"{from_runs} kinds of jobs from finished runs"] if from_runs else []
    if known > from_runs:
        sources.append(f"{known - from_runs} from a few steps, without start, validation and references")
    missing = len({_kind_of(job.words) for job in jobs}) - known
    sources += [f"{missing} kinds are not known"] if missing > 0 else []
    place = next(folder for folder in (outputs, *outputs.parents) if folder.exists())
    free = shutil.disk_usage(place).free
    warning = "; more than is free" if size > free else ""
    bound = "about" if known == from_runs else "at least"
    return [
        f"  {bound} {format_duration(seconds / places)} and {size / GB:.2g} GB of {free / GB:.0f} GB free{warning} "
        f"({'; '.join(sources)})"
    ]


def _kind_of(words: Sequence[str]) -> JobKind:
    """What the cost of a job follows from: its words without seeds, learning rates and where it runs."""
    own = [word for word in words if not word.startswith(("-", "hydra.")) and not may_change(word)]
    return tuple(sorted(word for word in own if override_key(word) not in FREE_KEYS))


def _read_finished_costs(outputs: Path, wanted: set[JobKind]) -> dict[JobKind, JobCost]:
    """The median cost of finished runs of some kinds; their commands are in their summaries."""
    found: dict[JobKind, list[JobCost]] = defaultdict(list)
    runs = (folder for folder, files in walk_runs(outputs) if SUMMARY in files)
    for folder in islice(runs, MAX_PAST_RUNS):
        summary = known_summary(folder)
        if summary is None or summary.status != "ok" or summary.wall_seconds is None:
            continue
        if (kind := _kind_of(summary.command or ())) in wanted:
            with suppress(OSError):
                size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
                found[kind].append((summary.wall_seconds, size))
    return {kind: (statistics.median(s for s, _ in costs), costs[0][1]) for kind, costs in found.items()}


def _measure_costs(kinds: dict[JobKind, Words], measure: Measure, modules: Sequence[str]) -> dict[JobKind, JobCost]:
    """The cost of each kind that a process of its own can measure in time."""
    context = fork_server(modules)
    here, there = context.Pipe(duplex=False)
    lifeline, held_here = context.Pipe(duplex=False)
    process = context.Process(target=_measure_in_turn, args=(there, list(kinds.values()), measure, lifeline))
    with hidden_main():
        process.start()
    there.close()
    found, end = {}, time.monotonic() + MEASURING_LIMIT_S
    with held_here, suppress(EOFError):
        for kind in kinds:
            if not here.poll(max(0.0, end - time.monotonic())):
                break
            if (cost := here.recv()) is not None:
                found[kind] = cost
    process.kill()
    process.join()
    return found


def _measure_in_turn(
    answers: Connection, jobs: Sequence[Sequence[str]], measure: Measure, lifeline: Connection
) -> None:
    """Sends the cost of each job, or None for a job that cannot run."""
    begin_job(lifeline)
    print_to(Path(os.devnull))
    for words in jobs:
        try:
            answers.send(measure(words))
        except Exception:  # the job itself will say what is wrong
            answers.send(None)


def format_duration(seconds: float) -> str:
    """Seconds as a person says them: 90 s, 12 min, 3.5 h."""
    minutes = seconds / 60
    return f"{minutes / 60:.1f} h" if minutes >= 90 else f"{minutes:.0f} min" if minutes >= 2 else f"{seconds:.0f} s"
