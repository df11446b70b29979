"""Was the swap worth it? What each attention costs in accuracy, beside the original and controls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sliceformer_lab.commands.compare.sentences import format_p
from sliceformer_lab.measures.metric_scale import PERCENT, format_estimate
from sliceformer_lab.measures.statistics import LEVEL, Estimate, estimate_crossed, holm
from sliceformer_lab.runs.plain_text import markdown_table

ALLOWED = 0.01  # that the accuracy may fall, one point
TOGETHER = "all, together"


@dataclass(frozen=True)
class SwapVerdict:
    """Whether each scored input was right (E,), by the original, and by row and set of layers."""

    original: np.ndarray
    rows: Mapping[str, Mapping[str, np.ndarray]]  # attention -> top k, bottom k, all, and TOGETHER; the subject first
    num_training: int
    num_layers: int

    @property
    def subject(self) -> str:
        """The attention that the user swapped in."""
        return next(iter(self.rows))

    def less(self) -> dict[str, tuple[Estimate, float | None]]:
        """The subject, healed together, less the original and each control: difference and Holm's p, if it has one."""
        ours = self.rows[self.subject][TOGETHER]
        others = {"original": self.original} | {name: sets[TOGETHER] for name, sets in self.rows.items()}
        found = {
            name: estimate_crossed((ours.astype(float) - theirs)[None])
            for name, theirs in others.items()
            if name != self.subject
        }
        p_values = holm([one.p() for one in found.values()])
        return {name: (one, p) for (name, one), p in zip(found.items(), p_values, strict=True)}

    def facts(self) -> dict[str, Any]:
        """What report.json keeps: accuracies, and a digit for each scored input, 1 if it was right."""
        rows = {**self.rows, "original": {"all": self.original}}
        accuracy = {name: {one: float(right.mean()) for one, right in sets.items()} for name, sets in rows.items()}
        digits = {
            name: {one: "".join(right.astype(int).astype(str)) for one, right in sets.items()}
            for name, sets in rows.items()
        }
        return {"accuracy": accuracy, "correct": digits, "sentence": verdict_sentence(self)}

    def allowed_layers(self, row: str, side: str) -> int:
        """The most layers from this side, each healed alone, with which at most a point is lost; 0 if none."""
        floor = self.original.mean() - ALLOWED - 1e-9
        counts = {name: int(name.split()[1]) for name in self.rows[row] if name.startswith(side)}
        counts["all"] = self.num_layers
        return max((count for name, count in counts.items() if self.rows[row][name].mean() >= floor), default=0)


def verdict_section(found: SwapVerdict) -> str:
    """The section of the report."""
    less = found.less()
    sets = list(found.rows[found.subject])
    accuracies = [["original", *["" for _ in sets[:-1]], _format_percent(found.original)]]
    accuracies += [
        [f"`{name}`", *(_format_percent(by_set[one]) for one in sets)] for name, by_set in found.rows.items()
    ]
    comparisons = [
        [name if name == "original" else f"`{name}`", format_points(one), format_p(p)]
        for name, (one, p) in less.items()
    ]
    return f"""## Was it worth it?

{verdict_sentence(found)}

{markdown_table([f"`{found.subject}` minus", "points", "p (Holm)"], *comparisons)}

Accuracy in percent on {len(found.original):,} inputs, of a logistic regression on embeddings of {found.num_training:,}
others. The sets of layers hold blocks that healed alone, before all weights healed together:

{markdown_table(["attention", *sets], *accuracies)}

± is a 95 % interval over the scored inputs; another order of healing, or other random weights, would move every row.
Not shown to differ is not equal: a difference within ± could be missed. Where all inputs differ by the same, there is
no spread to test with, so no p. A control that mixes nothing and keeps the score says that these labels need no
mixing in these layers.
"""


def verdict_sentence(found: SwapVerdict) -> str:
    """The finding: what was lost, whether a control loses as much, and how many layers can go."""
    less, subject = found.less(), found.subject
    (loss, p), controls = less["original"], {name: pair for name, pair in less.items() if name != "original"}
    is_shown = p is not None and p < LEVEL
    cost = ("loses" if loss.mean < 0 else "gains") + " accuracy" if is_shown else "is not shown to cost accuracy"
    parts = [f"`{subject}` {cost} ({format_points(loss)} points)"]
    shown = {name: one for name, (one, p) in controls.items() if p is not None and p < LEVEL}
    better = [f"`{name}`" for name, one in shown.items() if one.mean > 0]
    worse = [f"`{name}`" for name, one in shown.items() if one.mean < 0]
    alike = [f"`{name}`" for name in controls if name not in shown]
    for names, verb in (
        (better, "is better than"),
        (worse, "is worse than"),
        (alike, "is not shown to be better than"),
    ):
        if names:
            parts.append(f"it {verb} {' and '.join(names)}")
    counts = [f"{found.allowed_layers(subject, side)} from the {side}" for side in ("top", "bottom")]
    return f"**{'; '.join(parts)}.** Layers that can be replaced before the mean falls by a point: {', '.join(counts)}."


def format_points(one: Estimate) -> str:
    """A difference of accuracies in points, with the half of its interval."""
    return format_estimate(one.mean, one.interval().half_width, PERCENT, signed=True)


def _format_percent(right: np.ndarray) -> str:
    return f"{100 * right.mean():.1f}"
