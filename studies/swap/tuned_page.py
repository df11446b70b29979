"""The section of fine-tuning: what a task's own labels make of a MiniLM that was healed with another attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from intervals import correct, format_mean, mean_estimate

from sliceformer_lab.commands.compare.sentences import format_p
from sliceformer_lab.commands.swap.swap_verdict import format_points
from sliceformer_lab.measures.statistics import LEVEL, Estimate, estimate_crossed, holm
from sliceformer_lab.runs.plain_text import markdown_table

SUBJECT = "csp"
ROWS = ("original", "csp", "csp_shift_only", "sliceformer", "local", "mean", "random_permutation", "identity")
SEEDS = (0, 1, 2)

Scores = Mapping[tuple[str, str], np.ndarray]  # attention, task -> whether each text was right, by seed: (S, E)


def tuned_results(lines: Sequence[Mapping[str, Any]], tasks: Sequence[str]) -> str:
    """The section of the page: the finding, the comparisons, and the accuracies before and after."""
    tuned = {_key(line): line for line in lines if line["stage"] == "tuned"}
    scores = {(row, task): np.stack([correct(tuned[row, task, n]) for n in SEEDS]) for row in ROWS for task in tasks}
    rivals = [row for row in ROWS if row != SUBJECT]
    less = {rival: _difference(scores, rival, tasks) for rival in rivals}
    p_values = dict(zip(rivals, holm([one.p() for one in less.values()]), strict=True))
    comparisons = [[f"`{row}`", format_points(one), format_p(p_values[row])] for row, one in less.items()]
    before = {
        (line["attention"], line["task"]): line["accuracy"]
        for line in lines
        if (line["layers"], line["stage"]) in (("all", "layers"), ("none", "none"))
    }
    table = [
        [f"`{row}`", *(f"{100 * before[row, task]:.1f}, {format_mean(scores[row, task])}" for task in tasks)]
        for row in ROWS
    ]
    return "\n\n".join(
        [
            _finding(less, p_values),
            markdown_table(["csp less", "points, mean of the tasks", "p (Holm)"], *comparisons),
            "Test accuracy in percent, by logistic regression and then fine-tuned:",
            markdown_table(["", *tasks], *table),
        ]
    )


def _key(line: Mapping[str, Any]) -> tuple[str, str, int]:
    return line["attention"], line["task"], line["seed"]


def _difference(scores: Scores, rival: str, tasks: Sequence[str]) -> Estimate:
    """csp less a rival, paired over the seeds and texts of each task; the mean of the tasks."""
    return mean_estimate([estimate_crossed(scores[SUBJECT, task] - scores[rival, task]) for task in tasks])


def _finding(less: Mapping[str, Estimate], p_values: Mapping[str, float | None]) -> str:
    shown = [row for row, p in p_values.items() if p is not None and p < LEVEL]
    decided = {row: "above" if less[row].mean > 0 else "below" for row in shown}
    parts = [
        f"{side} {', '.join(f'`{row}`' for row in decided if decided[row] == side)}"
        for side in ("above", "below")
        if side in decided.values()
    ]
    undecided = ", ".join(f"`{row}`" for row in less if row not in decided)
    ending = f", and not shown to differ from {undecided}" if undecided else ""
    return f"**Healed and fine-tuned, `csp` is {' and '.join(parts) or 'decided against no other row'}{ending}.**"
