"""The speeds that this version promises, and the check whether results of `benchmark` meet them.

The limits are our own, slightly above measurements of prototypes on one thread of an AVX-512 processor (Zen 4).
Ratios compare times of one run. The limits of a GPU were estimated before one was measured.

| letter | goal | kernel | plain torch |
|---|---|---|---|
| A | layer, forward and backward, to fused softmax: N = 64, 1K, 4K, 16K | .50 .18 .05 .008 | .55 .18-.24 .09 .016 |
| B | layer with a complete sort, forward, to fused softmax | .52 .18 .06 .010 | .57 .29 .12 .025 |
| C | G=2 to the published code, forward; forward and backward | .08; .14 | .25; .45 |
| C | complete sort to the published code, forward; forward and backward | .06; .16 | .40; .95 |
| D | layer to the same layer without operator, G=2; complete to 8K | 1.15; 1.30 | 1.40; 2.3 |
| E | bytes saved for backward per element, G=2; G to 256; complete | .07; 1; 2 | .5; 1; 2 |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from sliceformer_lab.commands.benchmark.rows import Mode, SpeedRow, ratio_between

Column = Literal["kernel", "plain"]
COLUMNS: tuple[Column, ...] = ("kernel", "plain")


@dataclass(frozen=True)
class Goal:
    """Upper limits of one number, for our kernels and for plain torch; None: no promise."""

    letter: str
    kind: Literal["operator", "layer"]
    tokens: int
    method: str
    mode: Mode
    against: str | None  # the method in the denominator; None: not a ratio
    kernel: float | None
    plain: float | None
    group_size: int | None = None  # of an operator; None: complete sort

    def limit(self, column: Column) -> float | None:
        """The limit of a column."""
        return self.kernel if column == "kernel" else self.plain

    def __str__(self) -> str:
        size = "complete sort" if self.group_size is None else f"G={self.group_size}"
        subject = f"operator {size}" if self.kind == "operator" else f"layer {self.method}"
        if self.against is None:
            return f"{subject}, N={self.tokens}: saved bytes per element"
        passes = "forward" if self.mode == "inference" else "forward + backward"
        return f"{subject}, N={self.tokens}, {passes} / {self.against}"


@dataclass(frozen=True)
class Verdict:
    """A goal compared with its measurement, for one column."""

    goal: str
    letter: str
    column: Column
    limit: float
    measured: float | None  # None: not measured; `note` says why
    met: bool
    note: str = ""

    @property
    def off_by(self) -> float | None:
        """The distance to the limit as a share of it; negative is better than promised."""
        return None if self.measured is None else self.measured / self.limit - 1


def _layers(letter: str, mode: Mode, against: str, *limits: tuple[int, str, float, float]) -> list[Goal]:
    return [Goal(letter, "layer", n, method, mode, against, kernel, plain) for n, method, kernel, plain in limits]


def _modes(forward: tuple[float, float], both: tuple[float, float]) -> tuple[tuple[Mode, float, float], ...]:
    """Limits of kernel and plain torch for the two modes."""
    return (("inference", *forward), ("training", *both))


_PUBLISHED = {2: "published_csp", None: "published_sliceformer"}
CPU_GOALS: tuple[Goal, ...] = (
    *_layers(
        *("A", "training", "mha"),
        *((64, "csp", 0.50, 0.55), (1024, "csp", 0.18, 0.18), (1024, "sliceformer", 0.18, 0.24)),
        *((4096, "sliceformer", 0.05, 0.09), (16384, "sliceformer", 0.008, 0.016)),
    ),
    *_layers(
        *("B", "inference", "mha"),
        *((64, "sliceformer", 0.52, 0.57), (1024, "sliceformer", 0.18, 0.29)),
        *((4096, "sliceformer", 0.06, 0.12), (16384, "sliceformer", 0.010, 0.025)),
    ),
    Goal("C", "operator", 64, "shift_sort", "inference", _PUBLISHED[2], 0.08, 0.25, 2),
    Goal("C", "operator", 64, "shift_sort", "training", _PUBLISHED[2], 0.14, 0.45, 2),
    *(
        Goal("C", "operator", tokens, "shift_sort", mode, _PUBLISHED[None], kernel, plain)
        for tokens in (64, 1024, 4096, 16384)
        for mode, kernel, plain in _modes((0.06, 0.40), (0.16, 0.95))
    ),
    *_layers(
        *("D", "training", "identity"),
        *((64, "csp", 1.15, 1.40), (1024, "csp", 1.15, 1.40)),
        *((1024, "sliceformer", 1.30, 2.3), (4096, "sliceformer", 1.30, 2.3), (8192, "sliceformer", 1.30, 2.3)),
    ),
    Goal("E", "operator", 64, "shift_sort", "training", None, 0.07, 0.5, 2),
    Goal("E", "operator", 64, "shift_sort", "training", None, 1.0, 1.0, 32),
    Goal("E", "operator", 4096, "shift_sort", "training", None, 2.0, 2.0),
)
# bfloat16, 512 channels, 8 heads; estimates for the kernels of an H200.
CUDA_GOALS: tuple[Goal, ...] = (
    *(
        Goal("GPU", "layer", tokens, method, mode, "mha", limit, None)
        for method, forward, both in (
            ("csp", (0.55, 0.30, 0.11, 0.03), (0.50, 0.25, 0.09, 0.025)),
            ("sliceformer", (0.75, 0.85, 0.45, 0.25), (0.60, 0.42, 0.20, 0.10)),
        )
        for tokens, in_forward, in_both in zip((64, 1024, 4096, 16384), forward, both, strict=True)
        for mode, limit, _ in _modes((in_forward, 0.0), (in_both, 0.0))
    ),
    *(
        Goal("GPU", "operator", tokens, "shift_sort", mode, _PUBLISHED[size], limit, None, size)
        for size, limits in ((2, (0.05, 0.05, 0.05, 0.05)), (None, (0.2, 0.2, 0.2, 0.35)))
        for tokens, limit in zip((64, 1024, 4096, 16384), limits, strict=True)
        for mode in ("inference", "training")
    ),
    *(  # 75 % of the bandwidth of a copy, and 70 % at 16,384 tokens
        Goal("GPU", "operator", tokens, "shift_sort", "inference", "copy", limit, None, 2)
        for tokens, limit in ((64, 1.33), (1024, 1.33), (4096, 1.33), (16384, 1.43))
    ),
    Goal("GPU", "operator", 64, "shift_sort", "training", None, 0.07, None, 2),
    Goal("GPU", "operator", 4096, "shift_sort", "training", None, 2.0, None),
)


def goals_for(device: str) -> tuple[Goal, ...]:
    """The goals of a CPU with AVX-512, or of a GPU."""
    return CUDA_GOALS if device == "cuda" else CPU_GOALS


def verdicts(goals: Iterable[Goal], rows: Sequence[SpeedRow]) -> list[Verdict]:
    """The verdicts on goals whose workload was measured, for each column with a limit."""
    found = []
    for goal in goals:
        here = [row for row in rows if _is_of(goal, row)]
        if here:
            found += [_verdict(goal, column, here) for column in COLUMNS if goal.limit(column) is not None]
    return found


def _verdict(goal: Goal, column: Column, rows: Sequence[SpeedRow]) -> Verdict:
    limit = goal.limit(column) or 0.0
    ours = [row for row in rows if row.method == goal.method and (row.engine == "custom") == (column == "kernel")]
    if not ours:
        return Verdict(str(goal), goal.letter, column, limit, None, False, f"no {column} row")
    row = ours[0]
    measured, note = row.saved_bytes_per_element, row.note
    if goal.against is not None and row.status == "ok":
        base = next((other for other in rows if other.method == goal.against), None)
        usable = base is not None and base.status == "ok"
        measured = ratio_between(row, base)[0] if base is not None and usable else None
        note = "" if usable else f"{goal.against} was not measured"
    return Verdict(str(goal), goal.letter, column, limit, measured, measured is not None and measured <= limit, note)


def _is_of(goal: Goal, row: SpeedRow) -> bool:
    if (row.kind, row.tokens, row.mode) != (goal.kind, goal.tokens, goal.mode):
        return False
    return row.group_size is None or row.group_size == (goal.group_size or goal.tokens)
