"""The README's table and picture, made from the small results in docs/results.

usage: python docs/build.py                       write both again
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
BEGIN, END = "<!-- results: made by `make docs` -->", "<!-- end of results -->"
IN_PICTURE = ("mha", "sliceformer", "csp", "identity", "random_permutation")
KEPT = ("task", "attention", "seed", "split_seed", "protocol", "metrics", "parameters", "cost_per_sample", "command")
PLACES_OF_THIS_MACHINE = ("paths.", "data.root=")
Result = Mapping[str, Any]


def collect(folders: Iterable[str]) -> None:
    """Write docs/results/TASK_ATTENTION_SEED.json of each finished run, the spectra of seed 0 included."""
    for folder in folders:
        run = load_run(folder)
        result = {key: run.summary[key] for key in KEPT} | {"versions": run.summary["versions"]}
        result["command"] = [word for word in result["command"] if not word.startswith(PLACES_OF_THIS_MACHINE)]
        if run.summary["seed"] == 0 and run.summary["task"] == "digits" and run.summary["attention"] in IN_PICTURE:
            result["spectrum"] = _plain_record(ProbeRecord.load(run.folder / "spectrum.npz"))
        name = f"{result['task']}_{result['attention']}_{result['seed']}.json"
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


def read_results() -> list[Result]:
    """Every result in docs/results, by name."""
    return [json.loads(file.read_text(encoding="utf-8")) for file in sorted(RESULTS.glob("*.json"))]


def results_digest() -> str:
    """What the picture carries, so that a test can tell whether it is of these results."""
    content = b"".join(file.read_bytes() for file in sorted(RESULTS.glob("*.json")))
    return hashlib.sha256(content).hexdigest()


def table(results: Iterable[Result]) -> str:
    """A Markdown table, a row for each task and attention: mean test accuracy and its 95 % interval over seeds."""
    groups: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        groups[result["protocol"]["data"], result["attention"]].append(result)
    means = {key: np.mean([r["metrics"]["test/accuracy"] for r in runs]) for key, runs in groups.items()}
    lines = ["| data | attention | parameters | test accuracy, % | seeds |", "|---|---|---|---|---|"]
    for data, attention in sorted(groups, key=lambda key: (key[0], -means[key])):
        runs = groups[data, attention]
        accuracies = 100 * np.array([run["metrics"]["test/accuracy"] for run in runs])
        parameters = f"{runs[0]['parameters']:,}"
        lines.append(f"| {data} | {attention} | {parameters} | {interval(accuracies)} | {len(runs)} |")
    return "\n".join(lines)


def interval(values: np.ndarray[Any, np.dtype[np.float64]]) -> str:
    """Mean and Student's 95 % interval, or the value alone where there is one."""
    if len(values) == 1:
        return f"{values[0]:.2f} (one seed, no interval)"
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    return f"{values.mean():.2f} ± {half:.2f}"


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
