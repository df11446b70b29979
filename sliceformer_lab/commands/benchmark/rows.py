"""The measurements of a variant in one mode, and ratios between two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sliceformer_lab.measures.call_cost import quartiles

Mode = Literal["inference", "training"]
MODES: tuple[Mode, ...] = ("inference", "training")
Engine = Literal["plain", "compiled", "sdpa", "custom"]
Status = Literal["ok", "oom", "failed"]


@dataclass(kw_only=True)
class SpeedRow:
    """One variant on one workload, forward alone (inference) or forward and backward (training)."""

    suite: str
    workload: str
    kind: str
    device: str
    dtype: str
    threads: int
    compiled: bool
    batch: int
    tokens: int
    channels: int
    group_size: int | None  # of an operator alone
    method: str
    way: str
    name: str  # method and way
    mode: str  # inference | training
    engine: Engine | None = None  # None if it did not run
    status: Status = "ok"
    note: str = ""  # the error, if the status is not ok
    seconds: float | None = None  # median over rounds, with quartiles
    seconds_q1: float | None = None
    seconds_q3: float | None = None
    bytes_per_second: float | None = None  # of an operator's forward pass: values read and written once, over seconds
    softmax_kernel: str = ""  # of fused softmax attention: flash, efficient, cudnn
    against: str = ""  # the name of the row in the denominator of `ratio`
    ratio: float | None = None  # median over rounds of the ratio within a round, with quartiles
    ratio_q1: float | None = None
    ratio_q3: float | None = None
    peak_bytes: int | None = None
    saved_bytes: int | None = None  # for backward, without parameters
    saved_bytes_per_element: float | None = None  # of the B N C values
    equal: bool | None = None  # whether an operator's values equal those of the published code
    parameters: int | None = None
    multiply_adds: int | None = None  # of one sample's forward pass, as are the next two
    comparisons: int | None = None
    moves: int | None = None
    rounds: list[float] = field(default_factory=list, repr=False)  # seconds of each

    @property
    def place(self) -> tuple[Any, ...]:
        """The columns that two rows must share to be compared."""
        return (self.workload, self.tokens, self.batch, self.channels, self.mode)


def ratio_between(row: SpeedRow, other: SpeedRow) -> tuple[float, float, float]:
    """Time of `row` over that of `other`: median and quartiles over rounds."""
    return quartiles([mine / theirs for mine, theirs in zip(row.rounds, other.rounds, strict=True)])


def set_ratios(rows: Sequence[SpeedRow]) -> None:
    """Set the ratio of every row to its reference, if both ran."""
    ran = {(row.place, row.name): row for row in rows if row.status == "ok"}
    for row in ran.values():
        base = ran.get((row.place, row.against))
        if base is not None:
            row.ratio, row.ratio_q1, row.ratio_q3 = ratio_between(row, base)
