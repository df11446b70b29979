"""The committed results of finished runs, one JSON-lines file a study.

usage: python studies/results.py collect STUDY RUN_FOLDER...    add finished runs to studies/results/STUDY.jsonl
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sliceformer_lab.runs.files import write_text
from sliceformer_lab.runs.folder import read_summary

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


def collect(study: str, folders: Iterable[str]) -> None:
    """Add the results of finished runs to a study; a run with the same task, attention, setting and seed is replaced.

    Raises ValueError for a run that did not finish.
    """
    results = {_key(result): result for result in read(study)}
    for folder in folders:
        summary = read_summary(Path(folder))
        if summary["status"] != "ok":
            raise ValueError(f"{folder}: the run has status {summary['status']}; collect takes finished runs")
        result = {key: summary[key] for key in SUMMARY_KEYS}
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
