"""What an audit says in sentences: its verdicts with intervals, and what limits them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sliceformer_lab.commands.audit.audit_options import BASE, SHOWN
from sliceformer_lab.commands.audit.audit_results import Audit, AxisResult
from sliceformer_lab.commands.audit.verdicts import Outcome
from sliceformer_lab.measures.metric_scale import PERCENT, factor_of

COMPULSORY = ("identity", "mean", "pooling", "random_permutation", "random_mixing", "depthwise_conv", BASE)
PARTS = {"csp": ("csp_shift_only", "csp_random_order"), "sliceformer": ("sliceformer_reference",)}
PUBLIC = ("lra_", "peptides_")  # tasks with one public test set

VERBS = {"better": "is better than", "worse": "is worse than", "equivalent": "is equivalent to"}


def verdict_sentence(audit: Audit) -> str:
    """The last sentence of an audit. Verdicts that both axes share appear once."""
    groups: list[list[AxisResult]] = []
    for result in audit.results:
        same = next((group for group in groups if _verdicts(group[0]) == _verdicts(result)), None)
        if same is None:
            groups.append([result])
        else:
            same.append(result)
    said = [f"{_where(group)}: {_said(audit, group[0])}" for group in groups]
    limits = "; ".join(caveats(audit))
    looked = " (after looking)" if audit.changed_after_looking else ""
    return f"{audit.task}{looked}, {'. '.join(said)}{f'; {limits}' if limits else ''}."


def _verdicts(result: AxisResult) -> dict[str, str | None]:
    return {one.against: one.verdict for one in result.outcomes}


def _where(group: Sequence[AxisResult]) -> str:
    axes = " and ".join(SHOWN[result.axis] for result in group)
    return axes if len(group) == 1 else f"{axes} (numbers at {SHOWN[group[0].axis]})"


def _said(audit: Audit, result: AxisResult) -> str:
    """The verdicts of one axis, the decided ones first."""
    parts = []
    for verdict, verb in VERBS.items():
        if found := [one for one in result.outcomes if one.verdict == verdict]:
            parts.append(f"{verb} {_listed([_decided(audit, one) for one in found])}")
    if found := [one for one in result.outcomes if one.verdict == "undecided"]:
        parts.append(f"is not distinguishable from {_listed([_undecided(audit, one) for one in found])}")
    said = f"{audit.options.subject} {'; it '.join(parts)}" if parts else ""
    nothing = [f"no verdict against {one.against}: {one.reason}" for one in result.outcomes if one.verdict is None]
    if not parts and len({one.reason for one in result.outcomes}) == 1:
        return f"no verdict: {result.outcomes[0].reason}"
    return "; ".join([*([said] if said else []), *nothing])


def _decided(audit: Audit, one: Outcome) -> str:
    seeds = f"{len(one.differences)} seeds"
    if one.verdict == "equivalent":
        return f"{one.against} within {amount(one.margin, audit.metric)} ({difference(one, audit.metric)}, {seeds})"
    size = f"{number(abs(one.mean or 0.0), audit.metric)} ± {half_width(one, audit.metric)} {unit(audit.metric)}"
    return f"{one.against} by {size} ({seeds}, Holm p = {p_value(one.holm_p)})"


def _undecided(audit: Audit, one: Outcome) -> str:
    if one.withheld:
        verdict = "worse" if (one.mean or 0.0) < 0 else "better"
        loser = audit.options.subject if verdict == "worse" else one.against
        seen = f"'{verdict}' is withheld, because the best learning rate of {loser} is at the edge of the trials"
    elif one.smallest is None:
        seen = f"with {len(one.differences)} seeds no difference could have been found"
    else:
        seen = f"a difference of {number(one.smallest, audit.metric)} could have been found"
    return f"{one.against} ({difference(one, audit.metric)}, {len(one.differences)} seeds; {seen})"


def caveats(audit: Audit) -> list[str]:
    """What limits the verdicts, for the sentence."""
    found = []
    if audit.changed_after_looking:
        found.append(f"test scores of {_listed(audit.changed_after_looking)} with other options had been seen before")
    same = [
        result
        for result in audit.results
        if any(one.against == "identity" and one.verdict in ("undecided", "equivalent") for one in result.outcomes)
    ]
    if same and len(same) == len(audit.results):
        found.append("not better than no mixing, so this task at this size does not test an operator")
    if reference := unreached_reference(audit):
        found.append(reference)
    if edge := [name for name, is_at in audit.tuning.at_edge.items() if is_at]:
        found.append(f"at the edge of the learning rates after two extensions: {_listed(edge)}")
    if len(audit.tuning.points.points) == 1:
        found.append(f"not tuned: all rows have the learning rate {audit.tuning.points.low:g}")
    found += order_changes(audit)
    lost = {
        name: max(len(one.lost.get(name, ())) for one in audit.results if one.scores.get(name))
        for name in audit.options.attentions
        if any(one.scores.get(name) for one in audit.results)
    }
    found += [f"{count} runs of {name} failed and count as chance" for name, count in lost.items() if count]
    if audit.times is not None and audit.times.noise is not None:
        found.append(f"times were measured on a noisy machine ({audit.times.noise})")
    if audit.task.startswith(PUBLIC):
        found.append("public test set, reused")
    return found


def unreached_reference(audit: Audit) -> str | None:
    """A remark if no row reaches the best model without a network."""
    scores = {
        row["name"]: row["metrics"][audit.metric]
        for row in audit.references
        if audit.metric in (row.get("metrics") or {})
    }
    means = [mean for result in audit.results for name in result.scores if (mean := result.mean(name)) is not None]
    if not scores or not means:
        return None
    sign = audit.goal.sign
    name = max(scores, key=lambda one: sign * scores[one])
    if sign * scores[name] <= max(sign * mean for mean in means):
        return None
    return f"no row reaches {name} without a network ({number(scores[name], audit.metric)})"


def order_changes(audit: Audit) -> list[str]:
    """The rows that change places with the subject on validation if all share one learning rate."""
    tuning, sign, subject = audit.tuning, audit.goal.sign, audit.options.subject
    own: dict[str, float] = {}
    shared: dict[str, float] = {}
    for name, one in tuning.sensitivity.items():
        best = max(sign * trial.mean for trial in tuning.trials[name])
        own[name], shared[name] = best, best - (one.shared_regret or 0.0)
    changed = [
        name
        for name in audit.options.against
        if name in own and subject in own and (own[subject] - own[name]) * (shared[subject] - shared[name]) < 0
    ]
    return (
        [f"on validation one shared learning rate would reverse its order with {_listed(changed)}"] if changed else []
    )


def missing_rows(audit: Audit) -> str | None:
    """A sentence about rows of the protocol that this audit does not have."""
    wanted = [*COMPULSORY, *PARTS.get(audit.options.subject, ())]
    absent = [name for name in wanted if name not in audit.options.attentions]
    if not absent:
        return None
    return f"Not compared with {_listed(absent)}, so no claim that the task needs {audit.options.subject}."


def number(value: float | None, metric: str) -> str:
    """A score or difference in the unit of its metric; – for None."""
    if value is None:
        return "–"
    scaled = factor_of(metric) * value
    return f"{scaled:.2f}" if factor_of(metric) == PERCENT else f"{scaled:.3g}"


def unit(metric: str) -> str:
    """The unit of a difference."""
    return "points" if factor_of(metric) == PERCENT else metric.rpartition("/")[2]


def amount(value: float | None, metric: str) -> str:
    """A size with its unit."""
    return f"{number(value, metric)} {unit(metric)}"


def difference(one: Outcome, metric: str) -> str:
    """A mean difference in favour of the subject, with its interval."""
    if one.mean is None:
        return "–"
    sign = "+" if one.mean >= 0 else "-"
    return f"{sign}{number(abs(one.mean), metric)} ± {half_width(one, metric)}"


def half_width(one: Outcome, metric: str) -> str:
    """The longer arm of the interval."""
    if one.interval is None or one.mean is None:
        return "?"
    return number(max(one.interval.high - one.mean, one.mean - one.interval.low), metric)


def p_value(p: float | None) -> str:
    """A p value with three decimals."""
    return "–" if p is None else f"{p:.3f}"


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def verdict_counts(audit: Audit) -> Iterator[str]:
    """For two axes, the comparisons whose verdict is the same on both: such a verdict is robust."""
    if len(audit.results) < 2:
        return
    by_axis: list[Mapping[str, str | None]] = [_verdicts(result) for result in audit.results]
    same = [name for name in audit.options.against if by_axis[0][name] and by_axis[0][name] == by_axis[1][name]]
    other = [name for name in audit.options.against if name not in same]
    if same:
        yield f"The verdict is the same at equal parameters and at equal time against {_listed(same)}."
    if other:
        yield f"It differs between the two, or is missing in one, against {_listed(other)}."
