"""The goals of a GPU beside what was measured, in docs/speed.md.

python studies/gpu_goals.py            write the table (`make docs`)
python studies/gpu_goals.py FOLDER     keep the results of a finished `benchmark suite=goals device=cuda` first
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from growth import markdown
from marked_sections import with_section

from sliceformer_lab.commands.benchmark.goals import CUDA_GOALS
from sliceformer_lab.runs.files import write_json, write_text

STUDIES = Path(__file__).resolve().parent
MEASURED, PAGE = STUDIES / "results" / "gpu_goals.json", STUDIES.parent / "docs" / "speed.md"
KEPT = ("name", "workload", "tokens", "mode", "seconds", "bytes_per_second", "softmax_kernel", "peak_bytes", "status")


def keep(folder: Path) -> None:
    """Write studies/results/gpu_goals.json from results.json of a benchmark's folder. Raises SystemExit for another."""
    content = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    if (content["options"]["suite"], content["options"]["device"]) != ("goals", "cuda"):
        raise SystemExit(f"{folder} holds no results of benchmark suite=goals device=cuda")
    content["rows"] = [{key: row[key] for key in KEPT} for row in content["rows"]]
    write_json(MEASURED, {key: content[key] for key in ("options", "machine", "goals", "rows")})


def goals() -> str:
    """The text between the markers: all goals with their limits, and what was measured."""
    found: dict[str, Any] = json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.exists() else {"goals": []}
    verdicts = {verdict["goal"]: verdict for verdict in found["goals"]}
    rows = [[str(goal), f"{goal.kernel:g}", _measured(verdicts.get(str(goal)))] for goal in CUDA_GOALS]
    return f"{_machine(found)}\n\n{markdown(['goal', 'limit', 'measured'], rows)}"


def _machine(found: dict[str, Any]) -> str:
    if "machine" not in found:
        return "No GPU has run this yet; the limits are estimates for an H200. [gpu.md](gpu.md) says how to measure."
    facts, options = found["machine"], found["options"]
    kernels = {row["softmax_kernel"] for row in found["rows"]} - {""}
    return (
        f"Measured on {facts['accelerator']}, torch {facts['versions']['torch']}, commit {facts['git_commit']}, median "
        f"of {options['rounds']} rounds; softmax attention: {', '.join(sorted(kernels))}."
    )


def _measured(verdict: dict[str, Any] | None) -> str:
    if verdict is None or verdict["measured"] is None:
        return "–" if verdict is None else verdict["note"]
    return f"{verdict['measured']:.3g}" + ("" if verdict["met"] else " **missed**")


def write_page() -> None:
    """Replace what is between the markers of docs/speed.md."""
    write_text(PAGE, with_section(PAGE.read_text(encoding="utf-8"), "goals of a GPU", goals()))


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        keep(Path(argument))
    write_page()
