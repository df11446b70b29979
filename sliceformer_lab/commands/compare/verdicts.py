"""The verdict of each compared row: better, worse, equivalent, undecided or withheld, on every axis or on none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sliceformer_lab.measures.statistics import LEVEL, Estimate, Interval, holm, sign_flip_test

Verdict = Literal["better", "worse", "equivalent", "undecided", "withheld"]
OPEN_VERDICTS: tuple[Verdict, ...] = ("undecided", "withheld")  # verdicts that decide nothing


@dataclass(frozen=True)
class Pairs:
    """What is known of one comparison on one axis. Positive differences are in favour of the subject."""

    differences: Mapping[int, float]  # by seed
    estimate: Estimate | None  # of their mean; None: no verdict
    margin: float | None = None  # None: no default for this metric
    obstacle: str | None = None  # why there can be no verdict
    on_validation: Estimate | None = None  # the same difference on the validation split


@dataclass(frozen=True)
class Finding:
    """The numbers of one comparison on one axis."""

    differences: Mapping[int, float]
    estimate: Estimate
    interval: Interval
    p: float | None  # of Student's test, the same as the interval; None where all pairs are equal or differ by the same
    sign_flip_p: float  # of the exact test over seeds, on this test set
    p_equivalent: float | None  # of two one-sided tests; None without a margin or a p
    smallest: float | None  # the true difference that could have been found among these comparisons, where it is known
    margin: float | None
    alone: Verdict  # from this axis alone, with Holm's correction over the rows
    on_validation: Interval | None


@dataclass(frozen=True)
class Outcome:
    """The verdict of one compared row, from all axes."""

    against: str
    verdict: Verdict | None  # None: no verdict, for the reason
    reason: str | None
    findings: Mapping[str, Finding]  # by axis
    holm_p: float | None = None  # of the largest p of all axes, adjusted over the compared rows; None: one has no p
    only_on: tuple[str, ...] = ()  # the axes with a verdict that not every axis has
    would_be: Verdict | None = None  # the verdict that is withheld

    @property
    def depends_on_split(self) -> bool:
        """Whether the intervals of the validation and the test difference of some axis do not overlap.

        Equal differences show no spread, so the width of their interval says nothing.
        """
        pairs = [(one.interval, one.on_validation) for one in self.findings.values() if one.on_validation is not None]
        return any(
            seen.low > tested.high or seen.high < tested.low
            for tested, seen in pairs
            if tested.half_width and seen.half_width
        )


def judge_rows(
    family: Mapping[str, Mapping[str, Pairs]], subject_at_edge: bool = False, at_edge: Sequence[str] = ()
) -> list[Outcome]:
    """The outcomes of a family, given as the pairs of each row by axis. Holm counts the compared rows.

    A row is `better` or `worse` if the sign is the same on every axis and the adjusted p of the largest p of all axes
    is below 5 %; such an intersection of tests needs no correction over the axes. It is `equivalent` if the 90 %
    interval of every axis lies within the margin, else `undecided`. A verdict is withheld if the best rate is the
    smallest or largest tried and a better one beyond it could undo the verdict.
    """
    compared = {name: pairs for name, pairs in family.items() if any(one.estimate for one in pairs.values())}
    joint = dict(zip(compared, holm([_joint_p(pairs) for pairs in compared.values()]), strict=True))
    alone: dict[tuple[str, str], float | None] = {}
    for axis in dict.fromkeys(axis for pairs in compared.values() for axis in pairs):
        tests = {n: e.p() for n, pairs in compared.items() if (e := pairs[axis].estimate)}
        alone |= {(n, axis): p for n, p in zip(tests, holm([*tests.values()]), strict=True)}
    found = []
    for name, pairs in family.items():
        if name not in compared:
            reason = next((one.obstacle for one in pairs.values() if one.obstacle), "no seed has a score of both")
            found.append(Outcome(name, None, reason, {}))
            continue
        edges = subject_at_edge, name in at_edge
        findings = {
            axis: _judge_axis(one, one.estimate, alone[name, axis], len(compared), edges)
            for axis, one in pairs.items()
            if one.estimate is not None
        }
        found.append(_judge_row(name, pairs, findings, joint[name], edges))
    return found


def _joint_p(pairs: Mapping[str, Pairs]) -> float | None:
    """The p value of a difference with one sign on every axis: the largest one; None if an axis has none."""
    estimates = [one.estimate for one in pairs.values()]
    known = [estimate for estimate in estimates if estimate is not None]
    tests = [estimate.p() for estimate in known]
    p_values = [p for p in tests if p is not None]
    if len(p_values) < len(tests):
        return None
    return max(p_values) if len(known) == len(estimates) and len({one.mean > 0 for one in known}) == 1 else 1.0


def _decide_verdict(p: float | None, mean: float, is_equivalent: bool) -> Verdict:
    if p is not None and p < LEVEL:
        return "better" if mean > 0 else "worse"
    return "equivalent" if is_equivalent else "undecided"


def _can_be_undone(verdict: Verdict, edges: tuple[bool, bool]) -> bool:
    """Whether a rate beyond the edge could undo a verdict: the row that loses, or an equal one, would be better."""
    subject_at_edge, other_at_edge = edges
    return (subject_at_edge and verdict in ("worse", "equivalent")) or (
        other_at_edge and verdict in ("better", "equivalent")
    )


def _judge_axis(
    pairs: Pairs, estimate: Estimate, adjusted: float | None, count: int, edges: tuple[bool, bool]
) -> Finding:
    p_equivalent = None if pairs.margin is None else estimate.equivalence_p(pairs.margin)
    alone = _decide_verdict(adjusted, estimate.mean, p_equivalent is not None and p_equivalent < LEVEL)
    return Finding(
        pairs.differences,
        estimate,
        estimate.interval(),
        estimate.p(),
        sign_flip_test(list(pairs.differences.values())),
        p_equivalent,
        estimate.detectable(count),
        pairs.margin,
        "withheld" if _can_be_undone(alone, edges) else alone,
        None if pairs.on_validation is None else pairs.on_validation.interval(),
    )


def _judge_row(
    name: str,
    pairs: Mapping[str, Pairs],
    findings: Mapping[str, Finding],
    holm_p: float | None,
    edges: tuple[bool, bool],
) -> Outcome:
    mean = next(iter(findings.values())).estimate.mean
    reason = next((one.obstacle for one in pairs.values() if one.obstacle), None)
    equivalent = [one.p_equivalent is not None and one.p_equivalent < LEVEL for one in findings.values()]
    verdict = _decide_verdict(holm_p, mean, len(findings) == len(pairs) and all(equivalent))
    if _can_be_undone(verdict, edges):
        return Outcome(name, "withheld", reason, findings, holm_p, would_be=verdict)
    if verdict != "undecided":
        return Outcome(name, verdict, reason, findings, holm_p)
    only_on = tuple(axis for axis, one in findings.items() if one.alone not in OPEN_VERDICTS) if len(pairs) > 1 else ()
    return Outcome(name, "undecided", reason, findings, holm_p, only_on)
