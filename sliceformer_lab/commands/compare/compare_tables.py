"""The tables of a comparison: verdicts, rows, and how much each row depends on its learning rate."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from sliceformer_lab.commands.compare.compare_options import AXIS_NAMES, BASE_ROW
from sliceformer_lab.commands.compare.results import AxisResult, Comparison
from sliceformer_lab.commands.compare.search import lead_of
from sliceformer_lab.commands.compare.sentences import format_difference, format_p, format_smallest, in_unit, unit_of
from sliceformer_lab.commands.compare.verdicts import OPEN_VERDICTS, Outcome
from sliceformer_lab.measures.metric_scale import factor_of, format_estimate, format_heading

Rows = list[list[str]]


def verdict_table(found: Comparison) -> Rows:
    """A head, and for each declared comparison a row with its verdict, then one for each axis if there are several."""
    unit = unit_of(found.metric)
    head = ["against", "verdict", "Holm p", "at", f"test difference, {unit}", "p", "p on this test set"]
    head += ["could have been found", "margin", f"validation difference, {unit}"]
    return [head, *(row for one in found.outcomes for row in _verdict_rows(one, found.metric))]


def _verdict_rows(one: Outcome, metric: str) -> Iterator[list[str]]:
    if one.verdict is None:
        yield [one.against, "no verdict", "", one.reason or "", "", "", "", "", "", ""]
    for place, (axis, finding) in enumerate(one.findings.items()):
        verdict = one.verdict if one.verdict in OPEN_VERDICTS else f"**{one.verdict}**"
        first = [one.against, str(verdict), format_p(one.holm_p)] if place == 0 else ["", "", ""]
        seen = finding.on_validation
        validation = "–"
        if seen is not None:
            middle = (seen.high + seen.low) / 2
            validation = format_estimate(middle, seen.half_width, factor_of(metric), signed=True)
        tests = [format_p(finding.p), format_p(finding.sign_flip_p), format_smallest(finding, metric)]
        name = AXIS_NAMES[axis]
        yield [*first, name, format_difference(finding, metric), *tests, in_unit(finding.margin, metric), validation]


def row_table(found: Comparison, result: AxisResult) -> Rows:
    """A head, a row for each attention, and one for each model without a network."""
    metric, times = found.metric, found.times if result.axis == "time" else None
    untuned = found.options.untuned and result.axis == found.options.axes[0]
    head = ["row", format_heading(metric), "seeds", "parameters", "chosen"]
    head += [*(["recipe's own values"] if untuned else []), *(["time of a step", "steps"] if times else [])]
    rows = []
    for row in found.rows:
        name, scores = row.name, result.scores.get(row.name) or {}
        best = found.tuning.chosen[name]
        words = " ".join(best.point.words(row.plan.plain["optim"])) if best else "every trial diverged"
        sizes = " ".join(row.axis_words.get("params", ()) if result.axis == "params" else ())
        entry = [name, in_unit(result.mean(name), metric), str(len(scores)), _format_parameters(found, result, name)]
        entry.append(f"{words} {sizes}".strip() if found.tuning.learned[name] else "did not learn")
        if untuned:
            own, lost = found.untuned_scores(row)
            entry.append(in_unit(fmean(own) if own else None, metric) + (f" ({lost} at chance)" if lost else ""))
        if times is not None:
            steps, is_cut = times.steps_of(name)
            entry += [f"{times.ratio(name):.2f} of {BASE_ROW}", f"{steps:,}{' (limit)' if is_cut else ''}"]
        rows.append(entry)
    for reference in found.references:
        score = (reference.get("metrics") or {}).get(metric)
        remark = reference.get("skipped", "without a network")
        rows.append([reference["name"], in_unit(score, metric), "", "", remark, *[""] * (len(head) - 5)])
    return [head, *rows]


def _format_parameters(found: Comparison, result: AxisResult, name: str) -> str:
    """The parameters of a row, and how far they are from those of the model with mha."""
    counts = [run.summary.parameters for run in result.runs[name].values()]
    count = next((count for count in counts if count is not None), None)  # a run that diverged may have none
    target = found.base_parameters
    if count is None:
        return ""
    return f"{count:,.0f}" + (f" ({100 * (count / target - 1):+.1f} %)" if target else "")


def rate_table(found: Comparison) -> Rows:
    """A head, and for each row its chosen trial with its lead over the next best one."""
    metric, tuning = f"val/{found.goal.monitor}", found.tuning
    rows = [["row", format_heading(f"best {metric}"), "trial runs", "ahead of the next", "at the edge"]]
    for name, trials in tuning.trials.items():
        if (best := tuning.chosen[name]) is None:
            continue
        lead, ahead = lead_of(best, trials, found.goal.sign), "–"
        if lead is not None:
            ahead = f"{format_estimate(lead.mean, lead.interval().half_width, factor_of(metric))} over seeds"
        runs = str(sum(len(trial.scores) for trial in trials))
        rows.append([name, in_unit(best.mean, metric), runs, ahead, "yes" if tuning.at_edge[name] else ""])
    return rows


def way_table(found: Comparison) -> Rows:
    """A head, and the validation score of each way of a row to equal parameters; a head alone if there is no choice."""
    metric = f"val/{found.goal.monitor}"
    rows = [["row", format_heading(f"{metric} of each way to equal parameters")]]
    for name, ways in found.way_scores.items():
        rows.append([name, ", ".join(f"{way}: {in_unit(score, metric)}" for way, score in ways.items())])
    return rows


def as_records(table: Rows) -> list[dict[str, str]]:
    """The rows of a table by the names in its head."""
    head, *rows = table
    return [dict(zip(head, row, strict=True)) for row in rows]
