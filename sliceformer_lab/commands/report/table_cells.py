"""What a report says of its runs in the cells of a table, for all formats."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sliceformer_lab.commands.report.lines import Line, Published, RelativeCost
from sliceformer_lab.commands.report.reference_rows import ReferenceRow, references_of, skipped_of
from sliceformer_lab.measures.metric_scale import (
    factor_of,
    format_heading,
    format_number,
    format_signed,
    less_is_better,
)
from sliceformer_lab.measures.statistics import Interval
from sliceformer_lab.runs.groups import Table, format_option

Section = tuple[Table, list[Line]]
Column = Callable[[Line, float], str]

# columns of the files, which the terminal leaves out and the page shows on request
MINOR = ("interval over", "failures at chance", "smallest detectable", "multiply-adds")


def describe_common_options(table: Table) -> list[str]:
    """Sentences on the options that most rows share, if the rows differ in any, and on the data of all runs."""
    options = ", ".join(f"{name}={format_option(value)}" for name, value in table.usual.items())
    remarks = {remark: None for row in table.rows for run in row.runs for remark in run.summary.data_remarks}
    return [*([f"Unless a row says otherwise: {options}."] if options else []), *(f"Data: {one}." for one in remarks)]


def _build_columns(table: Table, lines: Sequence[Line]) -> dict[str, Column]:
    """Column head -> function of a line and the metric's factor that returns the cell."""
    opponents = {line.test.against for line in lines if line.test}
    versus = f"difference to {opponents.pop()}" if len(opponents) == 1 else "difference"
    return {
        "n": lambda line, _: _format_runs(line),
        format_heading(table.metric): _format_score,
        "interval over": lambda line, _: line.interval.how.partition(" over ")[2] if line.interval else "",
        "failures at chance": lambda line, factor: format_number(line.mean_with_failures, factor),
        versus: lambda line, factor: _format_difference(line, factor, named=versus == "difference"),
        "smallest detectable": lambda line, factor: format_number(line.test.smallest, factor) if line.test else "",
        "verdict": lambda line, _: _format_verdict(line),
        "budget": lambda line, _: line.budget,
        "parameters": lambda line, _: _format_cost(line.parameters),
        "multiply-adds": lambda line, _: _format_cost(line.multiply_adds),
        "samples/s": lambda line, _: _format_cost(line.speed),
        "published": lambda line, _: _format_published(line.published, table.metric),
        "to published": lambda line, _: _to_published(line.published),
    }


def cells(table: Table, lines: Sequence[Line], brief: bool = False) -> tuple[list[str], list[list[str]]]:
    """Column heads and rows, without empty columns; `brief` leaves MINOR columns out."""
    factor = factor_of(table.metric)
    columns = {name: column for name, column in _build_columns(table, lines).items() if not (brief and name in MINOR)}
    filled = {name: [column(line, factor) for line in lines] for name, column in columns.items()}
    shown_columns = {name: texts for name, texts in filled.items() if any(texts)}
    names = ["attention", *table.by, *shown_columns]
    rows = [
        [line.row.label, *map(format_option, line.row.factors), *(texts[i] for texts in shown_columns.values())]
        for i, line in enumerate(lines)
    ]
    return names, rows


def all_cells(table: Table, lines: Sequence[Line], brief: bool = False) -> tuple[list[str], list[list[str]]]:
    """As `cells`, with a row for each reference below."""
    names, rows = cells(table, lines, brief)
    return names, [*rows, *(texts for _, texts in reference_cells(table, names))]


def references_in(table: Table) -> list[ReferenceRow]:
    """The references of all runs of a table."""
    return references_of((run for row in table.rows for run in row.runs), table.metric)


def reference_cells(table: Table, names: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The remark on each reference of a table, and its cells, which have its name and its score or why it has none."""
    if format_heading(table.metric) not in names:
        return []
    rows = []
    for one in references_in(table):
        fitted = "" if one.seconds is None else f", fitted in {one.seconds:.3g} s"
        remark = f"a simple model, or the constant that suits the training data best, on the same split{fitted}"
        rows.append((remark, one.name, format_number(one.value, factor_of(table.metric))))
    skipped = skipped_of(run for row in table.rows for run in row.runs)
    rows += [("a simple model that was not scored", name, f"not scored: {why}") for name, why in skipped.items()]
    score = list(names).index(format_heading(table.metric))
    empty = [""] * (len(names) - 1)
    return [(remark, [f"reference: {name}", *empty[: score - 1], text, *empty[score:]]) for remark, name, text in rows]


def largest_first(table: Table, name: str) -> bool:
    """Whether the first click on a column's head puts the largest numbers on top: those are the best ones."""
    if name.startswith(("difference", "published", "to published", "failures")) or name == format_heading(table.metric):
        return not less_is_better(table.metric)
    return name in ("n", "samples/s")


def _format_score(line: Line, factor: float) -> str:
    """The mean with its interval; without one, with the lowest and the highest result."""
    mean = format_number(line.mean, factor, line.interval.half_width if line.interval else None)
    if line.interval is None and len(line.values) > 1:
        low, high = sorted(line.values.values())[:: len(line.values) - 1]
        return f"{mean} ({format_number(low, factor)}, {format_number(high, factor)})"
    return mean + _format_interval(line.interval, factor)


def _format_runs(line: Line) -> str:
    """Number of runs done and planned, and the statuses of the others."""
    others = ", ".join(f"{count} {status}" for status, count in line.statuses.items() if status != "ok")
    return f"{len(line.values)} of {line.planned}" + (f": {others}" if others else "")


def _format_difference(line: Line, factor: float, named: bool) -> str:
    """The difference to the opponent, which is `named` if the column's head does not name it."""
    if line.test is None or line.test.difference is None:
        return ""
    half = line.test.estimate.interval().half_width if line.test.estimate else None
    return f"{format_signed(line.test.difference, factor, half)}{f' to {line.test.against}' if named else ''}"


def _format_verdict(line: Line) -> str:
    if line.test is None:
        return ""
    return line.test.verdict if line.test.p is None else f"{line.test.verdict} (p = {line.test.p:.3g})"


def _format_cost(cost: RelativeCost) -> str:
    if cost.value is None:
        return ""
    ratio = "" if cost.ratio is None else f" ({cost.ratio:.2f} ×{' *' if cost.is_other else ''})"
    size = f"{cost.value:,.0f}" if cost.value >= 100 else f"{cost.value:.3g}"
    return f"{size}{ratio}"


def _format_published(published: Published | None, metric: str) -> str:
    """The published number in its own unit, marked under another protocol or metric, and the range if papers differ."""
    if published is None:
        return ""
    own = published.results[0]
    factor = factor_of(own.cell.metric)
    number = own.printed if own.value is None else format_number(own.value, factor)
    mark = " ≠" if published.reasons else ""
    low, high = published.span or (None, None)
    spread = "" if low == high else f" (papers {format_number(low, factor)} to {format_number(high, factor)})"
    other = "" if metric.removesuffix("_best_test_epoch") == own.cell.metric else f" {format_heading(own.cell.metric)}"
    return f"{number}{other}{mark}{spread}"


def _to_published(published: Published | None) -> str:
    """Our mean less the published number, in the unit of the paper's metric."""
    if published is None or published.difference is None:
        return ""
    return format_signed(published.difference, factor_of(published.results[0].cell.metric))


def published_notes(published: Published | None) -> list[str]:
    """Sentences on the published numbers of a row, and whether they can be compared."""
    if published is None:
        return []
    own = published.results[0]
    protocol = f"not comparable: {'; '.join(published.reasons)}" if published.reasons else "equal protocol"
    notes = [f"published as {own.cell.paper} {own.cell.table} ({own.cell.metric}), {protocol}"]
    if len(published.results) > 1:
        sources = ", ".join(f"{other.printed} in {other.cell.paper} {other.cell.table}" for other in published.results)
        notes.append(f"the papers print {sources}")
    return notes


def _format_interval(interval: Interval | None, factor: float) -> str:
    if interval is None:
        return ""
    low, high = (format_number(end, factor, interval.half_width) for end in (interval.low, interval.high))
    return f" [{low}, {high}]"
