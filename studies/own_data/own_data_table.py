"""Data sets as users bring them: the default command of each against its simple reference, on three seeds.

usage: python studies/own_data/own_data_table.py OWN RUNS    train what results.jsonl lacks; README.md names OWN's files

sets.yaml holds the words. A line of results.jsonl is a finished run: its test score, and the score of each simple
reference on the same examples with the interval of the difference over test examples.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from sliceformer_lab.measures.statistics import MAX_GROUPS, student_half_width
from sliceformer_lab.runs.plain_text import markdown_table

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))
from marked_sections import with_section  # noqa: E402
from result_lines import Line, check_lines  # noqa: E402

LINES, PAGE = FOLDER / "results.jsonl", FOLDER.parents[1] / "docs" / "own_data.md"
FACTS = ("git_commit", "digests", "steps", "processor_seconds", "parameters")
METRICS = {"mae": "mean absolute error", "auc": "AUC", "accuracy": "accuracy, %"}  # that a table may be scored by


def read_lines() -> list[Line]:
    """The finished runs. Raises DataError as `check`."""
    lines = [json.loads(text) for text in LINES.read_text("utf-8").splitlines()] if LINES.exists() else []
    check(lines)
    return lines


def check(lines: Sequence[Line]) -> None:
    """Raises DataError for a line of other words than declared, of other data than its set's, and for a second one."""
    sets = declared()["sets"]
    check_lines(
        LINES,
        lines,
        job_of=lambda line: (line["set"], line["attention"], line["seed"]),
        words_of=lambda line: words_of(sets[line["set"]], line["attention"], line["seed"]),
        data_of=lambda line, _: line["set"],
    )


def words_of(described: Mapping[str, Any], attention: str, seed: int) -> list[str]:
    """The words of a run on a set."""
    return [*shlex.split(described["words"]), f"attention={attention}", f"seed={seed}"]


def declared() -> Mapping[str, Any]:
    """sets.yaml: attentions, seeds, and of each set its words, metric, unit and a description."""
    plain: Mapping[str, Any] = yaml.safe_load((FOLDER / "sets.yaml").read_text("utf-8"))
    return plain


def missing_runs(plan: Mapping[str, Any], lines: Sequence[Line]) -> Iterator[tuple[str, str, int]]:
    """Set, attention and seed of each run without a line: all sets with the first seed, then with the next."""
    done = {(line["set"], line["attention"], line["seed"]) for line in lines}
    for seed in plan["seeds"]:
        for name in plan["sets"]:
            yield from ((name, one, seed) for one in plan["attentions"] if (name, one, seed) not in done)


def train(name: str, attention: str, seed: int, own: Path, runs: Path) -> Line:
    """Trains by the default command and returns the line of the run. Raises CalledProcessError if it fails."""
    described = declared()["sets"][name]
    words = words_of(described, attention, seed)
    folder = runs / f"{name}-{attention}-{seed}"
    given = [word.replace("{own}", str(own)) for word in words]
    machine = ["callbacks=minimal", "pictures=false", f"hydra.run.dir={folder}"]
    command = [sys.executable, "-m", "sliceformer_lab", *given, *machine]
    subprocess.run(command, check=True, cwd=runs, env=os.environ | {"OMP_NUM_THREADS": "1"})
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    metric = described["metric"]
    references = [
        {"name": row["name"], "val": row["metrics"][f"val/{metric}"], "test": row["metrics"][f"test/{metric}"]}
        | {edge: row["difference"][edge] for edge in ("low", "high")}
        for row in summary["references"]
        if "difference" in row
    ]
    with np.load(folder / "predictions.npz") as arrays:
        num_test = len(arrays["test_ids"])
    line = {"set": name, "attention": attention, "seed": seed, "words": words}
    line |= {split: summary["metrics"][f"{split}/{metric}"] for split in ("val", "test")}
    sizes = {"num_train": summary["protocol"]["num_train"], "num_test": num_test}
    return line | {"references": references} | sizes | {fact: summary[fact] for fact in FACTS}


def reference_of(lines: Sequence[Line], sign: int) -> str:
    """The simple model that is best on validation; of equal ones the last, which the task lists as the strongest."""
    rows = lines[0]["references"][::-1]
    return str(max(rows, key=lambda row: sign * row["val"])["name"])


def standing(lines: Sequence[Line], reference: str, sign: int) -> tuple[float, float]:
    """How much better the mean score over seeds is than the reference's, and the standard error of that difference.

    The variances over test examples and over seeds are added.
    """
    gains, variances = [], []
    for line in lines:
        row = next(row for row in line["references"] if row["name"] == reference)
        gains.append(sign * (line["test"] - row["test"]))
        groups = min(MAX_GROUPS, line["num_test"])
        one_error = float(student_half_width(np.sqrt(groups), groups))  # half an interval, in standard errors
        variances.append(((row["high"] - row["low"]) / 2 / one_error) ** 2)
    seeds = np.var(gains, ddof=1) / len(gains) if len(gains) > 1 else 0.0
    return float(np.mean(gains)), float(np.sqrt(np.mean(variances) + seeds))


def table(plan: Mapping[str, Any], lines: Sequence[Line]) -> str:
    """A row for each set: sizes, reference, and mean (lowest to highest seed) of each attention."""
    rows, reached, compared = [], dict.fromkeys(plan["attentions"], 0), 0
    for name, described in plan["sets"].items():
        found = {one: [k for k in lines if (k["set"], k["attention"]) == (name, one)] for one in plan["attentions"]}
        if any(len(runs) < len(plan["seeds"]) for runs in found.values()):
            continue
        compared += 1
        sign = -1 if described["metric"] == "mae" else 1
        reference = reference_of(found[plan["attentions"][0]], sign)
        first = found[plan["attentions"][0]][0]
        score = next(row["test"] for row in first["references"] if row["name"] == reference)
        cells = []
        for one, runs in found.items():
            gain, error = standing(runs, reference, sign)
            reached[one] += gain >= -error
            shown = [_number(run["test"], described["metric"]) for run in sorted(runs, key=lambda run: run["test"])]
            mean = _number(float(np.mean([run["test"] for run in runs])), described["metric"])
            cells.append(f"{f'**{mean}**' if gain >= -error else mean} ({shown[0]} to {shown[-1]})")
        words = " ".join(described["words"].replace("{own}/", "").split())
        where = f"{_number(score, described['metric'])}, {reference}"
        sizes = f"{first['num_train']:,} / {first['num_test']:,}"
        rows.append([f"{name}: {described['what']}", sizes, METRICS[described["metric"]], where, *cells, f"`{words}`"])
    if not rows:
        return "No set has all its runs yet."
    head = ["set", "training / test", "score", "reference", *(f"`{one}`" for one in plan["attentions"]), "words"]
    counts = ", ".join(f"`{one}` on {count}" for one, count in reached.items())
    sentence = f"**At least the reference less one standard error** (bold): {counts} of {compared}."
    return f"{markdown_table(head, *rows)}\n\n{sentence}"


def _number(value: float, metric: str) -> str:
    return f"{100 * value:.1f}" if metric == "accuracy" else f"{value:.3f}"


def page() -> str:
    """The page with the table between its markers."""
    return with_section(PAGE.read_text("utf-8"), "sets", table(declared(), read_lines()))


def main(own: Path, runs: Path) -> None:
    runs.mkdir(parents=True, exist_ok=True)
    plan = declared()
    for name, attention, seed in missing_runs(plan, read_lines()):
        line = train(name, attention, seed, own.resolve(), runs.resolve())
        check([*read_lines(), line])
        with LINES.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
