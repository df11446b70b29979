"""The committed results of finished runs, one JSON-lines file a study.

usage: python studies/results.py collect STUDY RUN_FOLDER...    add finished runs to studies/results/STUDY.jsonl
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sliceformer_lab.errors import DataError
from sliceformer_lab.runs.files import write_text
from sliceformer_lab.runs.folder import read_summary
from sliceformer_lab.runs.run_summary import RunSummary

RESULTS = Path(__file__).resolve().parent / "results"
README = RESULTS.parents[1] / "README.md"
SUMMARY_KEYS = (
    *("task", "attention", "seed", "split_seed", "protocol", "metrics", "chance", "parameters", "cost_per_sample"),
    *("command", "git_commit", "wall_seconds", "versions"),
)
MACHINE_OPTIONS = ("paths.", "data.root=", "data.file=")  # of a command; they name folders of one machine
Result = Mapping[str, Any]


def read(study: str) -> list[Result]:
    """The results in studies/results/STUDY.jsonl, one a run; none if there is no such file."""
    file = RESULTS / f"{study}.jsonl"
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def finished_runs(folders: Iterable[Path]) -> Iterator[tuple[Path, RunSummary]]:
    """The folders of runs among these folders and directly in them, as in those of sweeps, with their summaries.

    Raises DataError for a folder without runs, a run that did not finish, and one whose validation or test data
    are not those of the runs of the same task and length before it.
    """
    digests: dict[tuple[str, int | None, str], str] = {}
    for folder in sorted(chain(*map(_run_folders, folders))):
        summary = read_summary(folder)
        if summary.status != "ok":
            raise DataError(f"{folder}: the run has status {summary.status}; only finished runs are collected")
        length = summary.protocol.sequence_length if summary.protocol else None
        for split in {"val", "test"} & summary.digests.keys():
            place = summary.task, length, split
            if digests.setdefault(place, summary.digests[split]) != summary.digests[split]:
                raise DataError(f"{folder}: its {split} data are not those of the other runs of {summary.task}")
        yield folder, summary


def _run_folders(folder: Path) -> list[Path]:
    found = [file.parent for file in (*folder.glob("summary.json"), *folder.glob("*/summary.json"))]
    if not found:
        raise DataError(f"{folder}: there are no runs in it")
    return found


def collect(study: str, folders: Iterable[str]) -> None:
    """Add the results of finished runs to a study; a run with the same task, attention, setting and seed is replaced.

    Raises DataError as `finished_runs`.
    """
    results = {_key(result): result for result in read(study)}
    for _, summary in finished_runs(map(Path, folders)):
        recorded = summary.recorded()
        result = {key: recorded[key] for key in SUMMARY_KEYS}
        result["command"] = [word for word in result["command"] if not word.startswith(MACHINE_OPTIONS)]
        result["setting"] = " ".join(
            word for word in result["command"] if word.startswith("task.") and word != "task.bias=true"
        )
        results[_key(result)] = result
    lines = [json.dumps(results[key]) + "\n" for key in sorted(results)]
    write_text(RESULTS / f"{study}.jsonl", "".join(lines))


def interval(values: NDArray[np.float64]) -> str:
    """Mean and Student's 95 % interval; the value alone if there is only one."""
    if len(values) == 1:
        return f"{values[0]:.4g}"
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    return f"{values.mean():.4g} ± {half:.2g}"


def _key(result: Result) -> tuple[str, str, str, int]:
    return result["task"], result["attention"], result.get("setting", ""), result["seed"]


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["collect", study, *folders] if folders:
            collect(study, folders)
        case _:
            sys.exit(__doc__)
