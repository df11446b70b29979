"""How much a row depends on its learning rate, from its tuning trials."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sliceformer_lab.commands.compare.compare_options import BASE
from sliceformer_lab.commands.compare.search import Trial

SHARE = 0.05  # of (best - floor): a rate whose score is as near to the best is good enough


@dataclass(frozen=True)
class Sensitivity:
    """Figures of one row; differences are in the metric's unit and never negative for a worse choice."""

    width: float  # decades of learning rate whose scores are near the best
    shared_regret: float | None  # best minus the value at the one rate that is best on average over the rows
    base_regret: float | None  # best minus the value at the best rate of mha; None without that row


def sensitivities(
    rows: Mapping[str, Sequence[Trial]], chosen: Mapping[str, Trial | None], sign: float, floor: float | None
) -> dict[str, Sensitivity]:
    """The figures of each row with a usable trial. All rows have the same points."""
    tops = {name: top for name, top in chosen.items() if top is not None}
    usable = {name: rows[name] for name in tops}
    count = min((len(trials) for trials in usable.values()), default=0)
    totals = [sign * sum(trials[i].mean for trials in usable.values()) for i in range(count)]
    shared = totals.index(max(totals)) if totals else 0
    at_base = list(rows[BASE]).index(tops[BASE]) if BASE in tops else None
    return {
        name: Sensitivity(
            width=lr_width(trials, sign, floor),
            shared_regret=sign * (tops[name].mean - trials[shared].mean),
            base_regret=None if at_base is None else sign * (tops[name].mean - trials[at_base].mean),
        )
        for name, trials in usable.items()
    }


def lr_width(trials: Sequence[Trial], sign: float, floor: float | None) -> float:
    """The decades between the lowest and the highest of the neighbouring rates, around the best, that are good enough.

    Without a floor the worst trial takes its place. A single good rate has width 0.
    """
    ordered = sorted(trials, key=lambda trial: trial.point.rate)
    values = [sign * trial.mean for trial in ordered]
    best, worst = max(values), min(values) if floor is None else sign * floor
    near = [value >= best - SHARE * abs(best - worst) for value in values]
    low = high = values.index(best)
    while low > 0 and near[low - 1]:
        low -= 1
    while high + 1 < len(near) and near[high + 1]:
        high += 1
    return math.log10(ordered[high].point.rate / ordered[low].point.rate)
