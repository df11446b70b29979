"""What logger=wandb costs offline: seconds of a step and of a run on digits, as ratios in one process.

    python studies/wandb_overhead.py > studies/results/wandb_overhead.json

Runs with and without W&B take turns. A step's cost is in processor seconds and in seconds of all steps but the first;
that of a run is what W&B adds before the first and after the last step. The medians are over pairs of neighbours.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

from sliceformer_lab.__main__ import main
from sliceformer_lab.callbacks.guard import Guard
from sliceformer_lab.runs.commit import git_commit

PAIRS = 7
WORDS = ("task=digits", "attention=csp", "pictures=false", "reference=null", "optim.epochs=6")


@dataclass(frozen=True)
class Cost:
    """Seconds of one run."""

    step: float  # seconds of the clock, mean
    step_cpu: float  # seconds of the processor, mean
    rest: float  # seconds of the clock before the first and after the last step


def measure(folder: Path, *words: str) -> Cost:
    """Train in this process, and time its steps."""
    clock: list[tuple[float, float]] = []

    def note(*_: object) -> None:
        clock.append((time.perf_counter(), time.process_time()))

    usual, Guard.on_train_batch_end = Guard.on_train_batch_end, note  # type: ignore[method-assign]
    start = time.perf_counter()
    try:
        code = main([*WORDS, *words, f"hydra.run.dir={folder}"])
    finally:
        Guard.on_train_batch_end = usual  # type: ignore[method-assign]
    whole = time.perf_counter() - start
    if code:
        raise SystemExit(f"the run in {folder} failed")
    (first, cpu), (last, cpu_last) = clock[0], clock[-1]
    steps = len(clock) - 1
    return Cost((last - first) / steps, (cpu_last - cpu) / steps, whole - (last - first))


def study() -> dict[str, object]:
    """The medians over pairs of runs."""
    pairs = []
    with TemporaryDirectory() as place:
        for number in range(PAIRS + 1):
            folders = [Path(place) / f"{number}-{name}" for name in ("csv", "wandb")]
            plain = measure(folders[0])
            pairs.append((plain, measure(folders[1], "logger=wandb", "logger.offline=true")))
    pairs = pairs[1:]  # the first imports W&B and starts its service
    ratios = [other.step / plain.step for plain, other in pairs]
    cpu = [other.step_cpu / plain.step_cpu for plain, other in pairs]
    more = [other.rest - plain.rest for plain, other in pairs]
    return {
        "step_ratio": statistics.median(ratios),
        "step_ratios": sorted(ratios),
        "step_cpu_ratio": statistics.median(cpu),
        "run_seconds": statistics.median(more),
        "all_run_seconds": sorted(more),
        "step_seconds": statistics.median(plain.step for plain, _ in pairs),
        "pairs": PAIRS,
        "words": WORDS,
        "load": os.getloadavg()[0],
        "cores": os.cpu_count(),
        "commit": git_commit(),
        "date": date.today().isoformat(),
    }


if __name__ == "__main__":
    output, sys.stdout = sys.stdout, sys.stderr  # the runs print their progress
    print(json.dumps(study()), file=output)
