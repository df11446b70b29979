"""Do RALA and PolaFormer restore the rank of linear attention, and does accuracy follow? Tables of studies/study.md.

usage: python studies/linear_rank.py                          write the tables (`make docs`)
       python studies/linear_rank.py collect SWEEP_FOLDER...  write results/linear_rank.json first, from finished runs

The runs need `callbacks=default`, which measures the spectra. Ranks are those of the operator's output, the mean over
layers and 64 validation samples, before training and after the last epoch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from command_line import collect_or_write
from marked_sections import with_section
from results import RESULTS, finished_runs, interval

from sliceformer_lab.runs.files import write_text
from sliceformer_lab.runs.plain_text import markdown_table

FILE, PAGE = RESULTS / "linear_rank.json", RESULTS.parent / "study.md"
ROWS = ("mha", "linear", "rala", "polaformer", "depthwise_conv", "random_permutation", "identity")
TASKS = ("digits", "text_csv")
COLUMNS = {
    "accuracy": "test accuracy, %",
    "rank_untrained": "stable rank, mean removed: untrained",
    "rank_trained": "trained",
    "cosine_untrained": "cosine between tokens: untrained",
    "cosine_trained": "trained",
}


def collect(sweeps: Iterable[Path]) -> None:
    """Write the finished runs of sweeps to results/linear_rank.json. Raises DataError as `finished_runs`."""
    runs = []
    for folder, summary in finished_runs(sweeps):
        facts = {key: summary[key] for key in ("task", "attention", "seed", "parameters", "git_commit")}
        accuracy = round(100 * summary["metrics"]["test/accuracy"], 3)
        runs.append({**facts, "accuracy": accuracy, **ranks(folder / "spectrum.npz")})
    runs.sort(key=lambda run: (run["task"], run["attention"], run["seed"]))
    write_text(FILE, "[\n" + ",\n".join(json.dumps(run) for run in runs) + "\n]\n")


def ranks(file: Path) -> dict[str, float]:
    """Stable rank and cosine of the operator's output before and after training, the mean over layers."""
    with np.load(file) as found:
        place, forms = found["places"].tolist().index("output"), found["forms"].tolist()
        rank = found["stable_rank_mean"][:, :, place, forms.index("mean_removed")].mean(1)
        cosine = found["cosine_mean"][:, :, place, forms.index("raw")].mean(1)
    values = {"rank_untrained": rank[0], "rank_trained": rank[-1]}
    values |= {"cosine_untrained": cosine[0], "cosine_trained": cosine[-1]}
    return {name: round(float(value), 4) for name, value in values.items()}


def table(task: str) -> str:
    """A row for each attention that was trained on the task, with Student's 95 % interval over seeds."""
    runs: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    rows = []
    for name in ROWS:
        if own := [run for run in runs if (run["task"], run["attention"]) == (task, name)]:
            cells = [interval(np.array([run[key] for run in own])) for key in COLUMNS]
            rows.append([f"`{name}`", str(len(own)), *cells, f"{own[0]['parameters']:,}"])
    return markdown_table(["attention", "seeds", *COLUMNS.values(), "parameters"], *rows)


def page() -> str:
    """The page with both tables between their markers."""
    text = PAGE.read_text(encoding="utf-8")
    for task in TASKS:
        text = with_section(text, f"linear rank, {task}", table(task))
    return text


if __name__ == "__main__":
    collect_or_write(__doc__, collect, lambda: write_text(PAGE, page()))
