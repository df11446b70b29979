"""Whole training steps: by length in docs/speed.md, part by part in studies/speed.md.

The steps by part were measured by `benchmark suite=training`, at the commits in the file; later versions have no such
suite. Steps by length are measured by `step_times.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from marked_sections import with_section
from results import RESULTS

from sliceformer_lab.runs.plain_text import markdown_table

INPUTS = {"vit": "ViT", "text": "texts", "points": "clouds"}  # of a case of step_times.py
STEPS, TIMES = RESULTS / "training_steps.json", RESULTS / "step_times.json"
PAGE, DETAILS = RESULTS.parents[1] / "docs" / "speed.md", RESULTS.parent / "speed.md"
LIGHTNING, BARE = "Lightning", "bare loop"
CONTROLS = ("mha", "identity")
PARTS = ("data", "model", "optimiser")  # of a step
PLAIN = ("float32", "dropout of .1 on attention weights")  # 64 tokens; texts with their recipe's words
WORDS = {
    "encoder.attention_dropout=0": "none on them",
    "encoder.checkpoint=true": "checkpoint",
    "bf16": "bfloat16",
    "torch": "torch's own dropout and fused softmax",
}
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
    return float(median(mine / theirs for mine, theirs in zip(row[rounds], other[rounds], strict=True)))


def _list(values: Sequence[object]) -> str:
    return f"[{','.join(map(str, values))}]"


def lengths_section() -> str:
    """A line for each training, and the command and machine of each case."""
    lines, sources = [], []
    for name, case in json.loads(TIMES.read_text(encoding="utf-8")).items():
        steps = case["steps"]
        softmax = {tuple(step["words"]): step for step in steps if step["attention"] == "mha"}
        for step in steps:
            seconds, other = min(step["seconds"]), softmax.get(tuple(step["words"]))
            ratio = "" if other in (None, step) else f"{seconds / min(other['seconds']):.3f}"
            words = ", ".join(WORDS[word] for word in step["words"]) or PLAIN[case["tokens"] > 64]
            size = f"{INPUTS[name.partition('_')[0]]}, {case['tokens']:,} x {case['batch']}"
            peak = f"{step['peak_bytes'] / 1e6:,.0f}"
            lines.append((size, f"`{step['attention']}`", words, f"{seconds:.2f}", ratio, peak))
        facts = case["machine"]
        sources.append(
            f"- `{case['command']}`: one thread of {facts['processor']}, torch {facts['versions']['torch']}, commit\n"
            f"  {facts['git_commit']}, load {facts['load_before']:.0f} before and {facts['load_after']:.0f} after"
        )
    head = ("input, tokens x batch", "attention", "training", "s", "/ `mha`", "peak, MB")
    return f"{markdown_table(head, *lines)}\n\n" + "\n".join(sources)


def page() -> str:
    """The page of users with its table between the markers."""
    return with_section(PAGE.read_text(encoding="utf-8"), "training by length", lengths_section())


def details() -> str:
    """The page of details with its table between the markers."""
    return with_section(DETAILS.read_text(encoding="utf-8"), "training steps", steps_section())
