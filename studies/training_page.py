"""Whole training steps, part by part: the table of docs/speed.md, from results of `benchmark suite=training`.

usage: python studies/training_page.py               write the table (`make docs`)
       python studies/training_page.py FOLDER...     first keep the results in these folders, and no others
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from growth import markdown
from marked_sections import with_section
from results import RESULTS

from sliceformer_lab.commands.benchmark.rows import Row, ratio_between
from sliceformer_lab.commands.benchmark.training_goals import cpu_ratio, find, framework_ratio
from sliceformer_lab.commands.benchmark.training_recipes import BARE, LIGHTNING, PARTS
from sliceformer_lab.runs.files import write_text

FILE, PAGE = RESULTS / "training_steps.json", RESULTS.parents[1] / "docs" / "speed.md"
OMITTED = ("published", "published_text", "saved_bytes", "saved_bytes_per_element", "softmax_kernel")
FACTS = ("processor", "load_before", "versions", "git_commit")
HEAD = (
    *("", "attention", "ms", "/ mha", "/ identity", "model / mha", "Lightning / bare loop"),
    *("data, %", "model, %", "optimiser, %", "parameters, M", "peak, MB"),
)


def keep(folders: Iterable[Path]) -> None:
    """Write the options, the machine and the rows of finished benchmarks to studies/results/training_steps.json."""
    lines = []
    for folder in folders:
        content = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        rows = [{key: value for key, value in row.items() if key not in OMITTED} for row in content["rows"]]
        options = {
            key: content["options"][key] for key in ("suite", "sizes", "rounds", "warmup", "attentions", "compile")
        }
        machine = {key: content["machine"][key] for key in FACTS}
        lines.append(json.dumps({"options": options, "machine": machine, "rows": rows}))
    write_text(FILE, "[\n" + ",\n".join(lines) + "\n]\n")


def read() -> list[Mapping[str, Any]]:
    """The kept benchmarks."""
    found: list[Mapping[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def table() -> str:
    """A line for each recipe and attention, and the command and machine of each benchmark."""
    lines, sources = [], []
    for benchmark in read():
        rows = [Row(**row) for row in benchmark["rows"]]
        for name, tokens, batch in dict.fromkeys((row.workload, row.tokens, row.batch) for row in rows):
            here = [row for row in rows if (row.workload, row.tokens) == (name, tokens)]
            label = f"{name}, {tokens:,} tokens, batch {batch}"
            for method in dict.fromkeys(row.method for row in here):
                lines.append((tokens, [label, f"`{method}`", *_cells(here, method)]))
        options, machine = benchmark["options"], benchmark["machine"]
        words = f"sizes={_list(options['sizes'])} rounds={options['rounds']} warmup={options['warmup']}"
        attentions = f" attentions={_list(options['attentions'])}" if options["attentions"] else ""
        sources.append(
            f"- `benchmark suite=training {words}{attentions}`: one core of {machine['processor']}, torch "
            f"{machine['versions']['torch']},\n  commit {machine['git_commit']}, load {machine['load_before']:.1f}"
            " before the start"
        )
    ordered = [line for _, line in sorted(lines, key=lambda line: line[0])]
    return f"{markdown(HEAD, ordered)}\n\n" + "\n".join(sources)


def _cells(rows: Sequence[Row], method: str) -> list[str]:
    lightning, bare = find(rows, method, LIGHTNING), find(rows, method, BARE)
    softmax = find(rows, "mha", BARE)
    if lightning is None or bare is None or softmax is None:
        return ["failed"]
    others = [find(rows, other, LIGHTNING) for other in ("mha", "identity")]
    ratios = [None if other is None or other is lightning else ratio_between(lightning, other)[0] for other in others]
    whole = sum(bare.parts.values()) * (framework_ratio(rows, method) or 1.0)
    return [
        f"{1e3 * (lightning.seconds or 0):,.0f}",
        *("" if ratio is None else f"{ratio:.3f}" for ratio in ratios),
        "" if method == "mha" else f"{bare.parts['model'] / softmax.parts['model']:.3f}",
        f"{cpu_ratio(rows, method):.3f}",
        *(f"{100 * bare.parts[part] / whole:.1f}" for part in PARTS),
        f"{(lightning.parameters or 0) / 1e6:.3g}",
        "" if lightning.peak_bytes is None else f"{lightning.peak_bytes / 1e6:,.0f}",
    ]


def _list(values: Sequence[object]) -> str:
    return f"[{','.join(map(str, values))}]"


def page() -> str:
    """The page with the table between its markers."""
    return with_section(PAGE.read_text(encoding="utf-8"), "training steps", table())


if __name__ == "__main__":
    if sys.argv[1:]:
        keep(map(Path, sys.argv[1:]))
    write_text(PAGE, page())
