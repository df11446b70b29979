"""The sentences of a comparison: its verdicts with intervals, and what limits them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from statistics import fmean

from sliceformer_lab.commands.compare.compare_options import (
    AXIS_NAMES,
    COMPULSORY_ROWS,
    POSITION_ROWS,
    ROWS_OF_PARTS,
    SUBSTITUTE_ROWS,
)
from sliceformer_lab.commands.compare.results import Comparison
from sliceformer_lab.commands.compare.verdicts import OPEN_VERDICTS, Finding, Outcome
from sliceformer_lab.measures.metric_scale import PERCENT, factor_of, format_estimate, format_number, format_value
from sliceformer_lab.measures.statistics import LEVEL

PUBLIC_TASKS = (  # how the names of tasks begin that have one public test set
    *("cifar", "imagenet1k", "imdb", "lra_", "mnist", "modelnet40", "pcqm4m", "peptides_", "shapenet_part"),
    *("tiny_imagenet", "zinc"),
)
VERBS = {"better": "is better than", "worse": "is worse than", "equivalent": "is equivalent to"}


def verdict_sentence(found: Comparison) -> str:
    """The last sentence of a comparison: its verdicts, which hold on every axis, then what limits them."""
    if not found.outcomes:
        return f"{found.task}: {next(_not_compared(found), None) or _describe_alone(found)}."
    axes = [AXIS_NAMES[result.axis] for result in found.results]
    where = axes[0] if len(axes) == 1 else f"{' and '.join(axes)} (numbers at {axes[0]})"
    looked = " (after looking)" if found.changed_after_looking else ""
    looked += " (a trial of a few batches, no result)" if found.options.is_trial else ""
    limits = "; ".join(limits_of(found))
    return f"{found.task}{looked}, {where}: {'; '.join(_list_verdicts(found))}{f'; {limits}' if limits else ''}."


def _describe_alone(found: Comparison) -> str:
    subject, best = found.options.subject, found.tuning.chosen[found.options.subject]
    values = " ".join(best.point.words(found.rows[0].plan.plain["optim"])) if best else ""
    score = in_unit(best.mean if best else None, found.metric)
    return f"the best values for {subject} are {values} ({score} on validation); it was compared with nothing"


def _list_verdicts(found: Comparison) -> list[str]:
    """The verdicts, the decided ones first."""
    subject, parts = found.options.subject, []
    for verdict, verb in VERBS.items():
        if decided := [one for one in found.outcomes if one.verdict == verdict]:
            parts.append(f"{verb} {list_names([_describe_decided(found, one) for one in decided])}")
    if undecided := [one for one in found.outcomes if one.verdict == "undecided"]:
        parts.append(
            f"is not shown to differ from {list_names([_describe_undecided(found, one) for one in undecided])}"
        )
    judged = [f"{subject} {'; it '.join(parts)}"] if parts else []
    withheld = [_describe_withheld(found, one) for one in found.outcomes if one.verdict == "withheld"]
    return [*judged, *withheld, *_not_compared(found)]


def _not_compared(found: Comparison) -> Iterator[str]:
    """The rows without a verdict: those that have not learned together, each other one with its reason."""
    subject, tuning = found.options.subject, found.tuning
    learned, count = tuning.learned, len(tuning.points.points)
    unlearned = [row.name for row in found.rows[1:] if not learned[row.name]]
    if not learned[subject]:
        yield f"{subject} did not learn at any of {count} rates: no comparison of operators"
    elif unlearned:
        best = tuning.chosen[subject]
        score = f" ({in_unit(best.mean, found.metric)} on validation)" if best else ""
        yield (
            f"{subject} learns this task{score}, {list_names(unlearned)} in this form did not at any of {count} rates: "
            "no comparison of operators"
        )
    for one in found.outcomes:
        if one.verdict is None and learned[subject] and one.against not in unlearned:
            yield f"no verdict against {one.against}: {one.reason}"


def _describe_decided(found: Comparison, one: Outcome) -> str:
    finding = first_finding(one)
    seeds, metric = f"{len(finding.differences)} {_name_units(found)}", found.metric
    if one.verdict == "equivalent":
        difference = format_difference(finding, metric)
        return f"{one.against} within {with_unit(finding.margin, metric)} ({difference}, {seeds})"
    return f"{one.against} by {format_size(finding, metric)} ({seeds}, Holm {phrase_of_p(one.holm_p)})"


def _describe_undecided(found: Comparison, one: Outcome) -> str:
    finding, metric = first_finding(one), found.metric
    if one.only_on:
        alone = [f"{one.findings[axis].alone} only at {AXIS_NAMES[axis]}" for axis in one.only_on]
        seen = " and ".join(alone)
    else:
        seen = phrase_of_smallest(finding, metric)
    return f"{_describe_difference(found, one)}; {seen}{f'; {one.reason}' if one.reason else ''})"


def _describe_withheld(found: Comparison, one: Outcome) -> str:
    of = {"worse": f" of {found.options.subject}", "better": f" of {one.against}"}.get(one.would_be or "", " of a row")
    return (
        f"no verdict against {_describe_difference(found, one)}): '{one.would_be}' is withheld, because the best "
        f"learning rate{of} is the smallest or largest tried"
    )


def _describe_difference(found: Comparison, one: Outcome) -> str:
    """A compared row with its difference, in brackets that are left open; it names an axis that is not the first."""
    axis, finding = next(iter(one.findings.items()))
    at = "" if axis == found.options.axes[0] else f" at {AXIS_NAMES[axis]}"
    count = f"{len(finding.differences)} {_name_units(found)}"
    return f"{one.against} ({format_difference(finding, found.metric)}{at}, {count}"


def limits_of(found: Comparison) -> list[str]:
    """What limits the verdicts, for the sentence."""
    limits = []
    if found.changed_after_looking:
        seen = [f"{name} with other {list_names(options)}" for name, options in found.changed_after_looking.items()]
        limits.append(f"test scores of {list_names(seen)} had been seen before")
    beside_no_mixing = next((one.verdict for one in found.outcomes if one.against == "identity"), None)
    if beside_no_mixing == "equivalent":
        limits.append("not better than no mixing, so this task at this size does not test an operator")
    elif beside_no_mixing in OPEN_VERDICTS:
        limits.append("not shown to be better than no mixing")
    if reference := unreached_reference(found):
        limits.append(reference)
    if split := [one.against for one in found.outcomes if one.depends_on_split]:
        limits.append(
            f"the verdict against {list_names(split)} depends on the split: the intervals of the validation and the "
            "test difference do not overlap"
        )
    if edge := [name for name, is_at in found.tuning.at_edge.items() if is_at and found.tuning.learned[name]]:
        limits.append(
            f"the best learning rate is the smallest or largest tried"
            f"{_format_extensions(found.tuning.points.extensions)}: {list_names(edge)}"
        )
    if len(found.tuning.points.points) == 1:
        limits.append(f"not tuned: all rows have the learning rate {found.tuning.points.low:g}")
    for name in found.options.names:
        if count := max((len(one.lost.get(name, ())) for one in found.results if one.scores.get(name)), default=0):
            limits.append(f"runs of {name} that diverged and count as chance: {count}")
    if found.times is not None and found.times.noise is not None:
        limits.append(f"times were measured on a noisy machine ({found.times.noise})")
    if is_public(found.task):
        limits.append("public test set, reused")
    return limits


def is_public(task: str) -> bool:
    """Whether a task has one public test set, which many models were chosen on before."""
    return task.startswith(PUBLIC_TASKS)


def unreached_reference(found: Comparison) -> str | None:
    """A remark if no row reaches the best model without a network."""
    scores = {
        row["name"]: row["metrics"][found.metric]
        for row in found.references
        if found.metric in (row.get("metrics") or {})
    }
    means = [mean for result in found.results for name in result.scores if (mean := result.mean(name)) is not None]
    if not scores or not means:
        return None
    sign = found.goal.sign
    name = max(scores, key=lambda one: sign * scores[one])
    if sign * scores[name] <= max(sign * mean for mean in means):
        return None
    return f"no row reaches {name} without a network ({in_unit(scores[name], found.metric)})"


def order_note(found: Comparison) -> str | None:
    """Whether tuning changes the order of the rows that learned on validation; None for fewer than two.

    It compares means over the tuning seeds; a further seed decided only between some points of some rows.
    """
    tuning, sign, seeds = found.tuning, found.goal.sign, len(found.options.tuning_seeds)
    best = {name: fmean(one.scores[:seeds]) for name, one in tuning.chosen.items() if one and tuning.learned[name]}
    own = {
        row.name: next(fmean(one.scores[:seeds]) for one in tuning.trials[row.name] if one.point.rate == row.own_rate)
        for row in found.rows
        if row.name in best
    }
    if len(own) < 2:
        return None
    orders = []
    for each in (own, best):
        ranked = sorted(own, key=lambda name: -sign * each[name])
        orders.append(" > ".join(" = ".join(equal) for _, equal in groupby(ranked, key=each.__getitem__)))
    if orders[0] == orders[1]:
        return f"On validation tuning does not change the order: {orders[0]}."
    return f"On validation tuning changes the order: at the recipe's own rates {orders[0]}, tuned {orders[1]}."


def missing_rows(found: Comparison) -> str | None:
    """A sentence about compulsory rows that this comparison does not have."""
    has = {row.name for row in found.rows}
    if found.word == "tune":
        return None
    wanted = [*COMPULSORY_ROWS, *ROWS_OF_PARTS.get(found.options.subject, ())]
    if "bias" in (task := found.rows[0].plan.plain["task"]):  # a graph: no positions, and the other setting of the bias
        other = "mha_no_bias" if task["bias"] else "mha_bias"
        wanted = [*(name for name in wanted if name not in POSITION_ROWS), other]
    absent = [name for name in wanted if name not in has and not has & {*SUBSTITUTE_ROWS.get(name, ())}]
    if not absent:
        return None
    return f"Not compared with {list_names(absent)}, so no claim that the task needs {found.options.subject}."


def version_note(commits: Sequence[str]) -> list[str]:
    """A remark about runs of several commits; none if all are of one.

    The version of a row with an own operator has + and a digest of it, which the declaration keeps the same.
    """
    several = len({commit.partition("+")[0] for commit in commits}) > 1
    return [f"Runs of different versions of the code: {', '.join(commits)}."] if several else []


def first_finding(one: Outcome) -> Finding:
    """The numbers of the first axis."""
    return next(iter(one.findings.values()))


def in_unit(value: float | None, metric: str) -> str:
    """A score or size in the unit of its metric; – for None."""
    return format_value(value, metric) or "–"


def format_smallest(finding: Finding, metric: str) -> str:
    """The difference that could have been found, in the digits of the interval."""
    return format_number(finding.smallest, factor_of(metric), finding.interval.half_width) or "–"


def phrase_of_smallest(finding: Finding, metric: str) -> str:
    """The difference that could have been found, or why that is not known."""
    if finding.smallest is None:
        return f"all pairs {finding.estimate.describe_equal_pairs()}, so there is no spread to test with"
    return f"a difference of {format_smallest(finding, metric)} could have been found"


def unit_of(metric: str) -> str:
    """The unit of a difference."""
    return "points" if factor_of(metric) == PERCENT else metric.rpartition("/")[2]


def with_unit(value: float | None, metric: str) -> str:
    """A size with its unit."""
    return f"{in_unit(value, metric)} {unit_of(metric)}"


def format_difference(finding: Finding, metric: str) -> str:
    """A mean difference in favour of the subject, with its interval; an interval over seeds alone says so."""
    over = "" if finding.estimate.over == "seeds and examples" else f" over {finding.estimate.over}"
    difference = format_estimate(finding.estimate.mean, finding.interval.half_width, factor_of(metric), signed=True)
    return f"{difference}{over}"


def format_size(finding: Finding, metric: str) -> str:
    """A mean difference without its sign, half of its interval, and their unit."""
    size = format_estimate(abs(finding.estimate.mean), finding.interval.half_width, factor_of(metric))
    return f"{size} {unit_of(metric)}"


def format_p(p: float | None) -> str:
    """A p value with three decimals, or as many as show on which side of 5 % it is."""
    if p is None:
        return "–"
    texts = (f"{p:.{decimals}f}" for decimals in range(3, 17))
    return "< .001" if p < 0.001 else next((text for text in texts if (float(text) < LEVEL) == (p < LEVEL)), f"{p}")


def phrase_of_p(p: float | None) -> str:
    """A p value in a sentence: p = 0.012, or p < .001."""
    value = format_p(p)
    return f"p {value}" if value.startswith("<") else f"p = {value}"


def list_names(names: Sequence[str]) -> str:
    """Names as part of a sentence: a, b and c."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _format_extensions(extensions: int) -> str:
    """How often the list of rates grew, as the end of a phrase: ` after 2 extensions`."""
    return f" after {extensions} extension{'s' if extensions > 1 else ''}" if extensions else ""


def _name_units(found: Comparison) -> str:
    return "splits" if found.options.splits else "seeds"
