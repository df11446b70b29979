"""The measurements of a variant in one mode, and ratios between two of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

Mode = Literal["inference", "training"]
Engine = Literal["plain", "compiled", "sdpa", "custom"]
Status = Literal["ok", "oom", "failed"]
MatchKind = Literal["plain against plain", "best against best"]
KINDS: tuple[MatchKind, MatchKind] = ("plain against plain", "best against best")
WITHOUT_KERNELS = ("plain", "compiled")


@dataclass(kw_only=True)
class Row:
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
    paired: bool = True  # False: measured in another process than `against`; `ratio` is that of medians
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


@dataclass(frozen=True)
class Match:
    """Two methods compared, each in its fastest implementation of a class."""

    kind: MatchKind
    workload: str
    tokens: int
    mode: str
    name: str
    engine: str
    against: str
    against_engine: str
    ratio: float
    ratio_q1: float | None
    ratio_q3: float | None


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, first and third quartile."""
    q1, median, q3 = np.quantile(values, (0.25, 0.5, 0.75))
    return float(median), float(q1), float(q3)


def ratio_between(row: Row, other: Row) -> tuple[float, float | None, float | None]:
    """Time of `row` over that of `other`: median and quartiles over rounds, or the ratio of medians if not in turns."""
    if row.paired and other.paired:
        return quartiles([mine / theirs for mine, theirs in zip(row.rounds, other.rounds, strict=True)])
    return float(np.median(row.rounds) / np.median(other.rounds)), None, None


def set_ratios(rows: Sequence[Row]) -> None:
    """Set the ratio of every row to its reference, if both ran."""
    ran = {(row.place, row.name): row for row in rows if row.status == "ok"}
    for row in ran.values():
        base = ran.get((row.place, row.against))
        if base is not None:
            row.ratio, row.ratio_q1, row.ratio_q3 = ratio_between(row, base)


def matches(rows: Iterable[Row]) -> list[Match]:
    """Plain against plain and best against best, for every method and its reference."""
    found: list[Match] = []
    places: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row.status == "ok":
            places.setdefault(row.place, []).append(row)
    for group in places.values():
        method = group[0].against.partition(" (")[0]
        for kind, chosen in zip(KINDS, (_fastest_plain(group), _best(group)), strict=True):
            theirs = chosen.get(method)
            found += [
                Match(
                    kind,
                    row.workload,
                    row.tokens,
                    row.mode,
                    row.name,
                    str(row.engine),
                    theirs.name,
                    str(theirs.engine),
                    *ratio_between(row, theirs),
                )
                for row in chosen.values()
                if theirs is not None
            ]
    return found


def _fastest_plain(group: list[Row]) -> dict[str, Row]:
    """The fastest implementation of each method without custom kernels."""
    return _best([row for row in group if row.engine in WITHOUT_KERNELS])


def _best(group: list[Row]) -> dict[str, Row]:
    """The fastest implementation of each method."""
    found: dict[str, Row] = {}
    for row in sorted(group, key=lambda row: row.seconds or 0.0):
        found.setdefault(row.method, row)
    return found


def as_record(row: Row) -> dict[str, Any]:
    """The row as a dictionary, without its rounds."""
    return {name: value for name, value in asdict(row).items() if name != "rounds"}
