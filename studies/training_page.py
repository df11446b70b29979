"""Whole training steps, part by part, and csp against fused softmax attention: two tables of docs/speed.md.

usage: python studies/training_page.py               write the tables (`make docs`)

The steps by part were measured by `benchmark suite=training`, at the commits in the file; later versions have no such
suite. The other table is measured by `fused_softmax.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from marked_sections import with_section
from results import RESULTS

from sliceformer_lab.runs.files import write_text
from sliceformer_lab.runs.plain_text import markdown_table

STEPS, FUSED = RESULTS / "training_steps.json", RESULTS / "fused_softmax.json"
PAGE = RESULTS.parents[1] / "docs" / "speed.md"
LIGHTNING, BARE = "Lightning", "bare loop"
CONTROLS = ("mha", "identity")
PARTS = ("data", "model", "optimiser")  # of a step
DROPOUTS = {"0.1": "the recipe's dropout of .1 on attention weights: unfused", "0": "no dropout on them: fused"}
HEAD = (
    *("", "attention", "ms", "/ mha", "/ identity", "model / mha", "Lightning / bare loop"),
    *("data, %", "model, %", "optimiser, %", "parameters, M", "peak, MB"),
)
Row = Mapping[str, Any]


def steps_section() -> str:
    """A line for each recipe and attention, and the command and machine of each benchmark."""
    lines, sources = [], []
    for benchmark in json.loads(STEPS.read_text(encoding="utf-8")):
        rows = benchmark["rows"]
        for name, tokens, batch in dict.fromkeys((row["workload"], row["tokens"], row["batch"]) for row in rows):
            here = [row for row in rows if (row["workload"], row["tokens"]) == (name, tokens)]
            label = f"{name}, {tokens:,} tokens, batch {batch}"
            for method in dict.fromkeys(row["method"] for row in here):
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
    return f"{markdown_table(HEAD, *ordered)}\n\n" + "\n".join(sources)


def _cells(rows: Sequence[Row], method: str) -> list[str]:
    bare, lightning = (_find(rows, method, way) for way in (BARE, LIGHTNING))
    softmax = _find(rows, "mha", BARE)
    others = ["" if name == method else f"{_ratio(lightning, _find(rows, name, LIGHTNING)):.3f}" for name in CONTROLS]
    whole = sum(bare["parts"].values()) * _ratio(lightning, bare)
    return [
        f"{1e3 * lightning['seconds']:,.0f}",
        *others,
        "" if method == "mha" else f"{bare['parts']['model'] / softmax['parts']['model']:.3f}",
        f"{_ratio(lightning, bare, 'cpu_rounds'):.3f}",
        *(f"{100 * bare['parts'][part] / whole:.1f}" for part in PARTS),
        f"{lightning['parameters'] / 1e6:.3g}",
        f"{lightning['peak_bytes'] / 1e6:,.0f}",
    ]


def _find(rows: Sequence[Row], method: str, way: str) -> Row:
    return next(row for row in rows if (row["method"], row["way"]) == (method, way))


def _ratio(row: Row, other: Row, rounds: str = "rounds") -> float:
    """The median over rounds of the ratio within a round."""
    return median(mine / theirs for mine, theirs in zip(row[rounds], other[rounds], strict=True))


def _list(values: Sequence[object]) -> str:
    return f"[{','.join(map(str, values))}]"


def fused_section() -> str:
    """A line for each length and recipe, and the machine."""
    content = json.loads(FUSED.read_text(encoding="utf-8"))
    lines = [
        [
            f"{int(tokens):,}",
            DROPOUTS[key],
            f"{took['csp']:.2f}",
            f"{took['mha']:.2f}",
            f"{took['csp'] / took['mha']:.3f}",
        ]
        for tokens, dropouts in content["seconds"].items()
        for key, took in dropouts.items()
    ]
    facts = content["machine"]
    source = (
        f"`python studies/fused_softmax.py`: one thread of {facts['processor']}, "
        f"torch {facts['versions']['torch']}, commit {facts['git_commit']}, load {facts['load_before']:.0f}"
    )
    return f"{markdown_table(('tokens', 'training', '`csp`, s', '`mha`, s', 'csp / mha'), *lines)}\n\n{source}"


def page() -> str:
    """The page with both tables between their markers."""
    text = with_section(PAGE.read_text(encoding="utf-8"), "training steps", steps_section())
    return with_section(text, "fused softmax", fused_section())


if __name__ == "__main__":
    write_text(PAGE, page())
