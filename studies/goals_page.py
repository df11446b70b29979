"""The goals of a CPU and of a GPU beside what was measured, in studies/speed.md.

The trained layers of a GPU are in docs/speed.md, too.

usage: python studies/goals_page.py LAYERS OPERATORS    keep the verdicts on the results in these folders of `benchmark
                                                        suite=layers` and `suite=operators`, name the goals that are
                                                        slower than in the results kept before, and write the tables
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from marked_sections import with_section
from speed_goals import COLUMNS, Column, Goal, goals_for, verdicts

from sliceformer_lab.commands.benchmark.rows import SpeedRow
from sliceformer_lab.runs.files import write_json, write_text
from sliceformer_lab.runs.plain_text import markdown_table

STUDIES = Path(__file__).resolve().parent
RESULTS, PAGE = STUDIES / "results", STUDIES / "speed.md"
SUMMARY = STUDIES.parent / "docs" / "speed.md"
LAYERS = {"csp (triton)": "`csp`", "sliceformer (triton)": "`sliceformer`", "identity": "no operator"}
KEPT = (
    "name",
    "workload",
    "tokens",
    "mode",
    "seconds",
    "ratio",
    "bytes_per_second",
    "softmax_kernel",
    "peak_bytes",
    "status",
)
TOLERANCE = 0.10  # by which medians of two runs on one quiet machine differ without a reason
Results = Mapping[str, Any]


def read(device: str) -> Results | None:
    """The results kept for a device, cpu or cuda."""
    file = RESULTS / f"goals_{device}.json"
    found: Results | None = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
    return found


def keep(folders: Sequence[Path]) -> list[str]:
    """Write results/goals_DEVICE.json from benchmarks of one machine -> lines on goals not measured or now slower.

    Raises SystemExit if the folders measure no goal, or lack one that the results kept before have.
    """
    contents = [json.loads((folder / "results.json").read_text(encoding="utf-8")) for folder in folders]
    first = contents[0]
    device = first["options"]["device"]
    rows = [SpeedRow(**row) for content in contents for row in content["rows"]]
    found = verdicts(goals_for(device), rows)
    if not found:
        raise SystemExit(f"{folders[0]}: no measurement of a goal of {device}")
    measured = {one.goal for one in found}
    missing = [f"not measured: {goal}" for goal in goals_for(device) if str(goal) not in measured]
    before = read(device)
    if lost := {one["goal"] for one in before["goals"]} - measured if before else set():
        raise SystemExit(f"no measurement of {min(lost)}, nor of {len(lost) - 1} other goals that were measured before")
    now = {
        "options": first["options"],
        "machine": first["machine"],
        "goals": [asdict(one) for one in found],
        "rows": [{key: getattr(row, key) for key in KEPT} for row in rows],
    }
    write_json(RESULTS / f"goals_{device}.json", now)
    return missing + ([] if before is None else slower(before, now))


def slower(before: Results, now: Results) -> list[str]:
    """A line for each goal whose measurement rose by more than TOLERANCE; two processors are not compared."""
    processors = [results["machine"]["accelerator"] or results["machine"]["processor"] for results in (before, now)]
    if processors[0] != processors[1]:
        return [f"not compared with the results kept before, which are of {processors[0]}"]
    old = {(one["goal"], one["column"]): one["measured"] for one in before["goals"]}
    lines = []
    for one in now["goals"]:
        then, measured = old.get((one["goal"], one["column"])), one["measured"]
        if then and measured and measured > (1 + TOLERANCE) * then:
            lines.append(f"slower: {one['goal']}, {one['column']}: {measured:.3g} instead of {then:.3g}")
    return lines


def section(device: str) -> str:
    """The text between the markers: all goals with their limits, and what was measured."""
    found = read(device)
    measured = {} if found is None else {(one["goal"], one["column"]): one for one in found["goals"]}
    columns: tuple[Column, ...] = ("kernel",) if device == "cuda" else COLUMNS
    heads = [f"{'plain torch' if column == 'plain' else column}: limit" for column in columns]
    head = ["goal", *(cell for limit in heads for cell in (limit, "measured"))]
    return (
        f"{_machine(found)}\n\n{markdown_table(head, *[_row(goal, columns, measured) for goal in goals_for(device)])}"
    )


def _row(goal: Goal, columns: Sequence[Column], measured: Mapping[tuple[str, str], Results]) -> list[str]:
    cells = [(f"{goal.limit(column):g}", _shown(measured.get((str(goal), column)))) for column in columns]
    return [str(goal), *(text for pair in cells for text in pair)]


def _machine(found: Results | None) -> str:
    if found is None:
        how = "[gpu.md](gpu.md) says how"
        return f"Not measured yet. {how}."
    facts, options = found["machine"], found["options"]
    met = sum(one["met"] for one in found["goals"])
    kernels = {row["softmax_kernel"] for row in found["rows"]} - {""}
    return (
        f"Measured on {facts['accelerator'] or facts['processor']}, torch {facts['versions']['torch']}, commit "
        f"{facts['git_commit']}, load {facts['load_before']:.1f} before the start, medians of\n{options['rounds']} "
        f"rounds; softmax attention: {', '.join(sorted(kernels))}. **{met} of {len(found['goals'])} goals are met.**"
    )


def _shown(verdict: Results | None) -> str:
    if verdict is None or verdict["measured"] is None:
        return "–" if verdict is None else str(verdict["note"])
    return f"{verdict['measured']:.3g}" + ("" if verdict["met"] else " **missed**")


def layers_of_gpu() -> str:
    """A row for each length: the time of a layer, forward and backward, over that of fused softmax attention."""
    found = read("cuda")
    rows = [] if found is None else [r for r in found["rows"] if (r["workload"], r["mode"]) == ("layer", "training")]
    ratios = {(row["tokens"], row["name"]): row["ratio"] for row in rows}
    lengths = sorted({row["tokens"] for row in rows})
    cells = [[f"{tokens:,}", *(f"{ratios[tokens, name]:.2f}" for name in LAYERS)] for tokens in lengths]
    return markdown_table(["tokens", *LAYERS.values()], *cells)


def page() -> str:
    """The page with both tables between their markers."""
    text = with_section(PAGE.read_text(encoding="utf-8"), "goals of a CPU", section("cpu"))
    return with_section(text, "goals of a GPU", section("cuda"))


def summary_page() -> str:
    """docs/speed.md with its table between the markers."""
    return with_section(SUMMARY.read_text(encoding="utf-8"), "layers on a GPU", layers_of_gpu())


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit(__doc__)
    print(*keep([Path(argument) for argument in sys.argv[1:]]), sep="\n")  # noqa: T201
    write_text(PAGE, page())
    write_text(SUMMARY, summary_page())
