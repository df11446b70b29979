"""Estimates time and disk of a sweep before it starts: from finished runs of the same kind, or from a few steps."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from sliceformer_lab.runs.folder import SUMMARY
from sliceformer_lab.runs.resume import may_change
from sliceformer_lab.runs.sweep import PlannedJob, override_key
from sliceformer_lab.sweeps.fork_server import can_fork, fork_server
from sliceformer_lab.sweeps.queue import print_to

Kind = tuple[str, ...]
Cost = tuple[float, int]  # seconds and bytes
Measure = Callable[[Sequence[str]], Cost]

FREE = ("seed", "data.split_seed", "optim.lr", "optim.weight_decay", "study")  # keys that change no cost
MIN_MEASURED_JOBS = 4  # jobs; the cost of fewer is not measured
MEASURING_LIMIT_S = 30.0  # seconds for all measurements
MOST_RUNS = 2000  # finished runs to look at
GB = 1e9


def estimate(
    jobs: Sequence[PlannedJob], outputs: Path, places: int, measure: Measure | None, modules: Sequence[str]
) -> list[str]:
    """Lines on the time and disk that jobs need. `measure` runs a few steps of a job; None if that says nothing here.

    `places` is how many jobs run at once, `modules` what they import.
    """
    if not jobs:
        return []
    kinds = [_kind(job.words) for job in jobs]
    finished = _finished_costs(outputs, set(kinds))
    costs, from_runs = dict(finished), len(finished)
    unknown = {kind: job.words for kind, job in zip(kinds, jobs, strict=True) if kind not in costs}
    if unknown and measure is not None and len(jobs) >= MIN_MEASURED_JOBS and can_fork():
        costs |= _measured_costs(unknown, measure, modules)
    if not costs:
        return []
    usual = statistics.mean(seconds for seconds, _ in costs.values()), max(size for _, size in costs.values())
    seconds, size = (sum(costs.get(kind, usual)[part] for kind in kinds) for part in (0, 1))
    sources = [f"{from_runs} kinds of jobs from finished runs"] if from_runs else []
    sources += [f"{len(costs) - from_runs} from a few steps, without validation"] if len(costs) > from_runs else []
    missing = len(set(kinds)) - len(costs)
    sources += [f"{missing} kinds are not known"] if missing > 0 else []
    place = next(folder for folder in (outputs, *outputs.parents) if folder.exists())
    free = shutil.disk_usage(place).free
    warning = "; more than is free" if size > free else ""
    return [
        f"  about {_duration(seconds / places)} and {size / GB:.2g} GB of {free / GB:.0f} GB free{warning} "
        f"({'; '.join(sources)})"
    ]


def _kind(words: Sequence[str]) -> Kind:
    """What the cost of a job follows from: its words without seeds, learning rates and where it runs."""
    own = [w for w in words if not w.startswith(("-", "hydra.")) and override_key(w) not in FREE and not may_change(w)]
    return tuple(sorted(own))


def _finished_costs(outputs: Path, wanted: set[Kind]) -> dict[Kind, Cost]:
    """The median cost of finished runs of some kinds; their commands are in their summaries."""
    found: dict[Kind, list[Cost]] = defaultdict(list)
    for number, folder in enumerate(_run_folders(outputs)):
        if number >= MOST_RUNS:
            break
        with suppress(OSError, ValueError, KeyError, TypeError):
            summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
            kind = _kind([str(word) for word in summary["command"]])
            if summary["status"] == "ok" and kind in wanted:
                size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
                found[kind].append((float(summary["wall_seconds"]), size))
    return {kind: (statistics.median(s for s, _ in costs), costs[0][1]) for kind, costs in found.items()}


def _run_folders(outputs: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(outputs):
        if SUMMARY in files:
            folders.clear()
            yield Path(place)


def _measured_costs(kinds: dict[Kind, tuple[str, ...]], measure: Measure, modules: Sequence[str]) -> dict[Kind, Cost]:
    """The cost of each kind that a process of its own can measure in time."""
    context = fork_server(modules)
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_measure_in_turn, args=(there, list(kinds.values()), measure))
    process.start()
    there.close()
    found, end = {}, time.monotonic() + MEASURING_LIMIT_S
    with suppress(EOFError):
        for kind in kinds:
            if not here.poll(max(0.0, end - time.monotonic())):
                break
            if (cost := here.recv()) is not None:
                found[kind] = cost
    process.kill()
    process.join()
    return found


def _measure_in_turn(answers: Connection, jobs: Sequence[Sequence[str]], measure: Measure) -> None:
    """Sends the cost of each job, or None for a job that cannot run."""
    print_to(Path(os.devnull))
    for words in jobs:
        try:
            answers.send(measure(words))
        except Exception:  # the job itself will say what is wrong
            answers.send(None)


def _duration(seconds: float) -> str:
    minutes = seconds / 60
    return f"{minutes / 60:.1f} h" if minutes >= 90 else f"{minutes:.0f} min" if minutes >= 2 else f"{seconds:.0f} s"
