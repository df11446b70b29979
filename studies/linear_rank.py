"""Do RALA and PolaFormer restore the rank of linear attention, and does accuracy follow? Tables of studies/study.md.

They follow from results/linear_rank.json. The runs had `callbacks=default`, which measures the spectra.
Ranks are those of the operator's output, the mean over layers and 64 validation samples, before training and after
the last epoch.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from marked_sections import with_section
from results import RESULTS, interval

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
