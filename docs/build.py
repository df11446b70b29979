"""The README's table and docs/results.md, made from the small results in docs/results.

usage: python docs/build.py                       write them again
       python docs/build.py collect RUN_FOLDER... take the results of finished runs into docs/results first
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from sliceformer_lab.training.saved_run import load_run

DOCS = Path(__file__).resolve().parent
RESULTS, README = DOCS / "results", DOCS.parent / "README.md"
EVERY_RUN = DOCS / "results.md"
BEGIN, END = "<!-- results: made by `make docs` -->", "<!-- end of results -->"
ROWS = (
    *("mha", "sliceformer", "sliceformer_interleave", "csp", "csp_random_order", "csp_shift_only", "csp_sort_only"),
    *("samsa", "identity", "mean", "random_permutation"),
)
METRICS = {  # of a task, the one shown: its name here, and what it is multiplied with
    "test/accuracy": ("accuracy, %", 100),
    "test/average_precision": ("average precision", 1),
    "test/mae": ("mean absolute error", 1),
}
KEPT = (
    *("task", "attention", "seed", "split_seed", "protocol", "metrics", "chance", "parameters", "cost_per_sample"),
    *("command", "git_commit", "wall_seconds"),
)
PLACES_OF_THIS_MACHINE = ("paths.", "data.root=")
Result = Mapping[str, Any]


def collect(folders: Iterable[str]) -> None:
    """Write docs/results/TASK_ATTENTION_SEED.json of each finished run."""
    for folder in folders:
        run = load_run(folder)
        result = {key: run.summary[key] for key in KEPT} | {"versions": run.summary["versions"]}
        result["command"] = [word for word in result["command"] if not word.startswith(PLACES_OF_THIS_MACHINE)]
        result["setting"] = " ".join(
            word for word in result["command"] if word.startswith("task.") and word != "task.bias=true"
        )
        setting = f"_{result['setting'].replace('=', '_')}" if result["setting"] else ""
        name = f"{result['task']}_{result['attention']}{setting}_{result['seed']}.json"
        (RESULTS / name).write_text(json.dumps(result) + "\n", encoding="utf-8")


def build() -> None:
    """Write table and page."""
    results = read_results()
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    README.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{after}", encoding="utf-8")
    EVERY_RUN.write_text(every_run(results), encoding="utf-8")


def read_results() -> list[Result]:
    """Every result in docs/results, by name."""
    return [json.loads(file.read_text(encoding="utf-8")) for file in sorted(RESULTS.glob("*.json"))]


def table(results: Iterable[Result]) -> str:
    """A Markdown table: what each attention reaches on each test set, without further settings."""
    groups: dict[str, dict[str, list[Result]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        if not result.get("setting"):
            groups[f"{data_of(result)}: {METRICS[metric_of(result)][0]}"][result["attention"]].append(result)
    columns = [by_attention for _, by_attention in sorted(groups.items())]
    lines = [f"| attention | {' | '.join(sorted(groups))} |", "|---" * (1 + len(groups)) + "|"]
    for name in ROWS:
        cells = [interval(values_of(column[name])) if name in column else "" for column in columns]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def every_run(results: Iterable[Result]) -> str:
    """A page with a row for each run, and the command behind it."""
    lines = [
        "# Every run behind the README's table",
        "",
        "Made by `python docs/build.py` from `docs/results`. Folders of data and results are left out of the commands.",
        "",
        "| data | attention | setting | seed | parameters | test result | chance | commit | command |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for result in sorted(results, key=lambda r: (data_of(r), r["attention"], r.get("setting", ""), r["seed"])):
        name, scale = METRICS[metric_of(result)]
        chance = "" if result.get("chance") is None else f"{result['chance'] * scale:.4g}"
        lines.append(
            f"| {data_of(result)} | {result['attention']} | {result.get('setting', '')} | {result['seed']} | "
            f"{result['parameters']:,} | {result['metrics'][metric_of(result)] * scale:.4g} ({name}) | {chance} | "
            f"{result.get('git_commit', '')} | `{' '.join(result['command'])}` |"
        )
    return "\n".join(lines) + "\n"


def data_of(result: Result) -> str:
    """The data as the table names them."""
    return str(result["protocol"]["data"])


def metric_of(result: Result) -> str:
    """The metric of a result that is shown."""
    return next(name for name in METRICS if name in result["metrics"])


def values_of(runs: Iterable[Result]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The shown metric of some runs, in the unit that it is shown in."""
    return np.array([run["metrics"][metric_of(run)] * METRICS[metric_of(run)][1] for run in runs])


def interval(values: np.ndarray[Any, np.dtype[np.float64]]) -> str:
    """Mean and Student's 95 % interval with the number of seeds, or the value alone where there is one seed."""
    if len(values) == 1:
        return f"{values[0]:.4g}"
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    return f"{values.mean():.4g} ± {half:.2g} ({len(values)})"


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["collect", *folders] if folders:
            collect(folders)
        case []:
            pass
        case _:
            sys.exit(__doc__)
    build()
