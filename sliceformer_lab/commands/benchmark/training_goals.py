"""What whole training steps should cost, and the check whether a run of suite=training meets it.

The limits are our own. The framework is the time of a step by Lightning with callbacks and logger, over that of the
same task, loader and optimiser in a bare loop; on a CPU it is judged by processor time, because other processes change
the time on the clock by more than the limits. The model is the forward and backward pass of the bare loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from sliceformer_lab.commands.benchmark.goals import Verdict
from sliceformer_lab.commands.benchmark.rows import Row, ratio_between
from sliceformer_lab.commands.benchmark.training_recipes import BARE, LIGHTNING

SMALL_MODEL, LARGE_MODEL = 1.10, 1.05  # framework: of digits, and of models with more than LARGE parameters
LARGE = 1_000_000
MODEL_LIMITS = {64: 0.67, 4096: 0.20}  # tokens -> csp's model over mha's


def framework_ratio(rows: Sequence[Row], method: str) -> float | None:
    """The median over rounds of Lightning's step over the bare loop's, of one workload; None if one did not run."""
    lightning, bare = (find(rows, method, way) for way in (LIGHTNING, BARE))
    return None if lightning is None or bare is None else ratio_between(lightning, bare)[0]


def cpu_ratio(rows: Sequence[Row], method: str) -> float | None:
    """As `framework_ratio`, of processor time, which waiting for other processes does not change."""
    lightning, bare = (find(rows, method, way) for way in (LIGHTNING, BARE))
    if lightning is None or bare is None:
        return None
    return median(mine / theirs for mine, theirs in zip(lightning.cpu_rounds, bare.cpu_rounds, strict=True))


def find(rows: Sequence[Row], method: str, way: str) -> Row | None:
    """The row of an attention and a way of training, if it ran."""
    return next((row for row in rows if (row.method, row.way, row.status) == (method, way, "ok")), None)


def training_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """The verdicts on the goals of the workloads that were measured."""
    found = []
    for place in dict.fromkeys((row.workload, row.tokens) for row in rows):
        here = [row for row in rows if (row.workload, row.tokens) == place]
        title = f"{place[0]}, N={place[1]}"
        for method in dict.fromkeys(row.method for row in here):
            parameters = next((row.parameters for row in here if row.method == method), None) or 0
            limit = SMALL_MODEL if place[0] == "digits" else LARGE_MODEL if parameters > LARGE else None
            measured = (framework_ratio if here[0].device == "cuda" else cpu_ratio)(here, method)
            if limit is not None and measured is not None:
                found.append(_verdict(f"{title}, {method}: Lightning / bare loop", limit, measured))
        csp, mha = find(here, "csp", BARE), find(here, "mha", BARE)
        if csp is not None and mha is not None and place[1] in MODEL_LIMITS:
            ratio = csp.parts["model"] / mha.parts["model"]
            found.append(_verdict(f"{title}, forward + backward: csp / mha", MODEL_LIMITS[place[1]], ratio))
    return found


def _verdict(goal: str, limit: float, measured: float) -> Verdict:
    return Verdict(goal, "T", "kernel", limit, measured, measured <= limit)
