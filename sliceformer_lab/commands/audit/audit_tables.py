"""The tables of an audit: verdicts, rows, and how much each row depends on its learning rate."""

from __future__ import annotations

from collections.abc import Iterator

from sliceformer_lab.commands.audit.audit_options import BASE
from sliceformer_lab.commands.audit.audit_results import Audit, AxisResult
from sliceformer_lab.commands.audit.sentences import difference, number, p_value, unit
from sliceformer_lab.commands.audit.verdicts import Outcome
from sliceformer_lab.measures.metric_scale import headed

Rows = list[list[str]]


def verdict_table(audit: Audit, result: AxisResult) -> Rows:
    """A head, and a row for each declared comparison."""
    metric = audit.metric
    head = [
        "against",
        "verdict",
        f"difference, {unit(metric)}",
        "seeds",
        "p",
        "Holm p",
        "margin",
        "could have been found",
    ]
    return [head, *(_verdict_row(one, metric) for one in result.outcomes)]


def _verdict_row(one: Outcome, metric: str) -> list[str]:
    if one.verdict is None:
        return [one.against, "no verdict", "", str(len(one.differences)), "", "", "", one.reason or ""]
    seen = "none" if one.smallest is None else number(one.smallest, metric)
    tests = [p_value(one.p), p_value(one.holm_p), number(one.margin, metric), seen]
    return [one.against, one.verdict, difference(one, metric), str(len(one.differences)), *tests]


def row_table(audit: Audit, result: AxisResult) -> Rows:
    """A head, a row for each attention, and one for each model without a network."""
    metric, times = audit.metric, audit.times if result.axis == "time" else None
    head = ["row", headed(metric), "seeds", "parameters", "chosen", *(["time of a step", "steps"] if times else [])]
    rows = []
    for row in audit.rows:
        name, scores = row.attention, result.scores.get(row.attention) or {}
        best = audit.tuning.chosen[name]
        chosen = " ".join(best.point.words(row.config["optim"])) if best else "no trial finished"
        words = " ".join([chosen, *(row.axis_words.get("params", ()) if result.axis == "params" else ())])
        entry = [name, number(result.mean(name), metric), str(len(scores)), _parameters(audit, result, name), words]
        if times is not None:
            steps, is_cut = times.steps_of(name)
            entry += [f"{times.ratio(name):.2f} of {BASE}", f"{steps:,}{' (limit)' if is_cut else ''}"]
        rows.append(entry)
    for reference in audit.references:
        score = (reference.get("metrics") or {}).get(metric)
        remark = reference.get("skipped", "without a network")
        rows.append([reference["name"], number(score, metric), "", "", remark, *(["", ""] if times else [])])
    return [head, *rows]


def _parameters(audit: Audit, result: AxisResult, name: str) -> str:
    """The parameters of a row, and how far they are from those of the model with mha."""
    count = next((run.number("parameters") for run in result.runs[name].values()), None)
    target = audit.rows[0].base_parameters
    if count is None:
        return ""
    return f"{count:,.0f}" + (f" ({100 * (count / target - 1):+.1f} %)" if target else "")


def rate_table(audit: Audit) -> Rows:
    """A head, and the sensitivity of each row to its learning rate."""
    metric = f"val/{audit.goal.monitor}"
    head = ["row", headed(f"best {metric}"), "at the edge", "width", "regret, shared rate", f"regret, rate of {BASE}"]
    rows = []
    for name, one in audit.tuning.sensitivity.items():
        best = max(audit.tuning.trials[name], key=lambda trial: audit.goal.sign * trial.mean)
        regrets = [number(one.shared_regret, metric), number(one.base_regret, metric)]
        edge = "yes" if audit.tuning.at_edge[name] else ""
        rows.append([name, number(best.mean, metric), edge, f"{one.width:.2f}", *regrets])
    return [head, *rows]


def markdown_table(rows: Rows) -> Iterator[str]:
    """The lines of a table in Markdown; the first row is its head."""
    head, *body = rows
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in body:
        yield f"| {' | '.join(row)} |"
