"""The README's table and picture and docs/results.md, made from the small results in docs/results.

usage: python docs/build.py                       write them again
       python docs/build.py collect RUN_FOLDER... take the results of finished runs into docs/results first
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from scipy import stats

from sliceformer_lab.analysis.plots import plot_spectra_comparison
from sliceformer_lab.analysis.probe import MEASURES, ProbeRecord
from sliceformer_lab.record import load_run

DOCS = Path(__file__).resolve().parent
RESULTS, PICTURE, README = DOCS / "results", DOCS / "spectra.png", DOCS.parent / "README.md"
EVERY_RUN = DOCS / "results.md"
BEGIN, END = "<!-- results: made by `make docs` -->", "<!-- end of results -->"
COLUMNS = ("csp", "mha", "sliceformer", "samsa", "identity", "random_permutation", "mean")
METRICS = {  # of a task, the one shown: its name here, and what it is multiplied with
    "test/accuracy": ("accuracy, %", 100),
    "test/average_precision": ("average precision", 1),
    "test/mae": ("mean absolute error", 1),
}
IN_PICTURE = ("mha", "sliceformer", "csp", "identity", "random_permutation")
KEPT = (
    *("task", "attention", "seed", "split_seed", "protocol", "metrics", "chance", "parameters", "cost_per_sample"),
    *("command", "git_commit", "wall_seconds"),
)
PLACES_OF_THIS_MACHINE = ("paths.", "data.root=")
Result = Mapping[str, Any]


def collect(folders: Iterable[str]) -> None:
    """Write docs/results/TASK_ATTENTION_SEED.json of each finished run, the spectra of seed 0 included."""
    for folder in folders:
        run = load_run(folder)
        result = {key: run.summary[key] for key in KEPT} | {"versions": run.summary["versions"]}
        result["command"] = [word for word in result["command"] if not word.startswith(PLACES_OF_THIS_MACHINE)]
        result["setting"] = " ".join(
            word for word in result["command"] if word.startswith("task.") and word != "task.bias=true"
        )
        if run.summary["seed"] == 0 and run.summary["task"] == "digits" and run.summary["attention"] in IN_PICTURE:
            result["spectrum"] = _plain_record(ProbeRecord.load(run.folder / "spectrum.npz"))
        setting = f"_{result['setting'].replace('=', '_')}" if result["setting"] else ""
        name = f"{result['task']}_{result['attention']}{setting}_{result['seed']}.json"
        (RESULTS / name).write_text(json.dumps(result) + "\n", encoding="utf-8")


def build() -> None:
    """Write picture and table."""
    results = read_results()
    records = {
        name: _record(result["spectrum"])
        for name in IN_PICTURE
        for result in results
        if result["attention"] == name and "spectrum" in result
    }
    plot_spectra_comparison(records, PICTURE)
    note = PngInfo()
    note.add_text("Results", results_digest())
    Image.open(PICTURE).quantize(256).save(PICTURE, pnginfo=note, optimize=True)
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    README.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{after}", encoding="utf-8")
    EVERY_RUN.write_text(every_run(results), encoding="utf-8")


def read_results() -> list[Result]:
    """Every result in docs/results, by name."""
    return [json.loads(file.read_text(encoding="utf-8")) for file in sorted(RESULTS.glob("*.json"))]


def results_digest() -> str:
    """What the picture carries, so that a test can tell whether it is of these results."""
    content = b"".join(file.read_bytes() for file in sorted(RESULTS.glob("*.json")))
    return hashlib.sha256(content).hexdigest()


def table(results: Iterable[Result]) -> str:
    """A Markdown table, a row for each task: what each attention reaches on its test set, without further settings."""
    groups: dict[str, dict[str, list[Result]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        if not result.get("setting"):
            groups[data_of(result)][result["attention"]].append(result)
    shown = [name for name in COLUMNS if any(name in by_attention for by_attention in groups.values())]
    lines = [f"| data | {' | '.join(shown)} |", "|---" * (1 + len(shown)) + "|"]
    for data, by_attention in sorted(groups.items()):
        cells = [interval(values_of(by_attention[name])) if name in by_attention else "" for name in shown]
        metric = metric_of(next(iter(by_attention.values()))[0])
        lines.append(f"| {data}: {METRICS[metric][0]} | {' | '.join(cells)} |")
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


def _plain_record(record: ProbeRecord) -> dict[str, Any]:
    """The last measurement of a record as rounded lists, NaN as null."""
    plain: dict[str, Any] = {
        "epochs": record.epochs[-1:].tolist(),
        "attentions": record.attentions.tolist(),
        "sample_ids": record.sample_ids.tolist(),
        "num_tokens": record.num_tokens.tolist(),
        "note": record.note,
    }
    for moment, measures in (("mean", record.mean), ("std", record.std)):
        plain[moment] = {name: _rounded(measures[name][-1:]) for name in MEASURES}
    return plain


def _record(plain: Mapping[str, Any]) -> ProbeRecord:
    arrays = {
        moment: {name: np.array(values, dtype=np.float64) for name, values in plain[moment].items()}
        for moment in ("mean", "std")
    }
    return ProbeRecord(
        epochs=np.array(plain["epochs"]),
        attentions=np.array(plain["attentions"]),
        sample_ids=np.array(plain["sample_ids"]),
        num_tokens=np.array(plain["num_tokens"]),
        note=plain["note"],
        **arrays,
    )


def _rounded(values: Any) -> Any:
    if isinstance(values, np.ndarray):
        return [_rounded(part) for part in values]
    return None if np.isnan(values) else float(f"{values:.4g}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["collect", *folders] if folders:
            collect(folders)
        case []:
            pass
        case _:
            sys.exit(__doc__)
    build()
