"""What was measured of one variant in one mode, and how two of them compare."""

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
    engine: Engine | None = None  # None where it did not run
    status: Status = "ok"
    note: str = ""  # why not, if not ok
    seconds: float | None = None  # median over the rounds, and quartiles
    seconds_q1: float | None = None
    seconds_q3: float | None = None
    against: str = ""  # the name that the ratio is to
    ratio: float | None = None  # median over the rounds of the ratio inside a round, and quartiles
    ratio_q1: float | None = None
    ratio_q3: float | None = None
    paired: bool = True  # False: measured in another process than `against`, the ratio is one of medians
    peak_bytes: int | None = None
    saved_bytes: int | None = None  # for backward, parameters not counted
    saved_bytes_per_element: float | None = None  # of the B N C values
    equal: bool | None = None  # whether an operator's values are those of the published way
    parameters: int | None = None
    multiply_adds: int | None = None  # of one sample's forward pass, as are the next two
    comparisons: int | None = None
    moves: int | None = None
    published: float | None = None  # what the paper prints here, of its own machine
    published_text: str = ""  # as printed, and where
    rounds: list[float] = field(default_factory=list, repr=False)  # seconds of each

    @property
    def place(self) -> tuple[Any, ...]:
        """What two rows must share to be compared."""
        return (self.workload, self.tokens, self.batch, self.channels, self.mode)


@dataclass(frozen=True)
class Match:
    """One method against another, each by the best way of a class."""

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
    """Time of `row` in times of `other`: median and quartiles over rounds, or of medians alone if not in turns."""
    if row.paired and other.paired:
        return quartiles([mine / theirs for mine, theirs in zip(row.rounds, other.rounds, strict=True)])
    return float(np.median(row.rounds) / np.median(other.rounds)), None, None


def set_ratios(rows: Sequence[Row]) -> None:
    """Fill in every row's ratio to the one that it is measured against, where both ran."""
    ran = {(row.place, row.name): row for row in rows if row.status == "ok"}
    for row in ran.values():
        base = ran.get((row.place, row.against))
        if base is not None:
            row.ratio, row.ratio_q1, row.ratio_q3 = ratio_between(row, base)


def matches(rows: Iterable[Row]) -> list[Match]:
    """Plain against plain, and best against best, for every method and whatever it was measured against."""
    found: list[Match] = []
    places: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row.status == "ok":
            places.setdefault(row.place, []).append(row)
    for group in places.values():
        method = group[0].against.partition(" (")[0]
        for kind, chosen in zip(KINDS, (_plain(group), _best(group)), strict=True):
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


def _plain(group: list[Row]) -> dict[str, Row]:
    """The fastest way of each method without a kernel of its own."""
    return _best([row for row in group if row.engine in WITHOUT_KERNELS])


def _best(group: list[Row]) -> dict[str, Row]:
    """The fastest way of each method."""
    found: dict[str, Row] = {}
    for row in sorted(group, key=lambda row: row.seconds or 0.0):
        found.setdefault(row.method, row)
    return found


def as_record(row: Row) -> dict[str, Any]:
    """The row without its rounds."""
    return {name: value for name, value in asdict(row).items() if name != "rounds"}
