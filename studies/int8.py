"""What does int8 cost each attention in ONNX Runtime and in ExecuTorch? The table of docs/predict.md.

ONNX Runtime's int8 is static QDQ, ExecuTorch's the XNNPACK quantiser by pt2e; both have one scale for each output
channel of a weight and one for a tensor of activations, calibrated on the same training pictures. Every file scored all
test pictures in its own runtime. A time is processor time on one thread, the median of rounds in which all files of
seed 0 took turns. `identity` mixes nothing: what int8 costs it is not the mixer's.
"""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

from marked_sections import with_section
from results import RESULTS

from sliceformer_lab.runs.plain_text import markdown_table

PAGE, RESULT = Path(__file__).resolve().parent.parent / "docs" / "predict.md", RESULTS / "int8.json"
ROWS, SEEDS = ("mha", "csp", "sliceformer", "pooling", "depthwise_conv", "identity"), (0, 1, 2)
RUNTIMES = {"onnx": "ONNX Runtime", "executorch": "ExecuTorch"}
COLUMNS = (
    *("attention", "runtime", "seeds", "accuracy, %", "int8, points", "kB, int8", "ms, int8"),
    "not int8, or outside",
)


def table(result: Mapping[str, Any]) -> str:
    """A row for each attention and runtime; a range is that of the seeds."""
    rows = []
    for row, (runtime, name) in product(ROWS, RUNTIMES.items()):
        measured = [run for seed in SEEDS if (run := result["runs"].get(f"{row}-{seed}"))]
        runs = [run for run in measured if run[runtime]]
        if not runs:
            rows.append([f"`{row}`", name, str(len(measured)), "refused", *[""] * 4])
            continue
        before = [100 * run[runtime]["correct"][0] / run["size"] for run in runs]
        sizes = ", ".join(f"{size / 1000:.0f}" for size in runs[0][runtime]["bytes"])
        milliseconds = ", ".join(f"{value:.2f}" for value in result["ms"][row][runtime])
        if len(runs[0][runtime]["correct"]) == 1:
            rows.append([f"`{row}`", name, str(len(runs)), f"{mean(before):.2f}", "failed", sizes, milliseconds, ""])
            continue
        after = [100 * run[runtime]["correct"][1] / run["size"] for run in runs]
        changes = [last - first for first, last in zip(before, after, strict=True)]
        shown = f"{mean(changes):+.2f}"
        if len(runs) > 1:
            shown += f" ({min(changes):+.2f} to {max(changes):+.2f})"
        left = Counter(runs[0][runtime]["left"])
        if row != "identity":
            left -= Counter(result["runs"]["identity-0"][runtime]["left"])
        names = ", ".join(f"{count} {operator}" for operator, count in left.items()) or "none"
        rows.append([f"`{row}`", name, str(len(runs)), f"{mean(before):.2f}", shown, sizes, milliseconds, names])
    return markdown_table(COLUMNS, *rows)


def page() -> str:
    """The page with the table between its markers."""
    result = json.loads(RESULT.read_text("utf-8"))
    versions = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    note = (
        f"{result['processor']}, {result['cores']} cores, load {result['load']}; {versions}; "
        f"`{result['words']}`; medians of {result['rounds']} rounds."
    )
    note = textwrap.fill(note, width=120, break_long_words=False, break_on_hyphens=False)
    return with_section(PAGE.read_text(encoding="utf-8"), "int8", f"{table(result)}\n\n{note}")
