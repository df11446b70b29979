"""Formats a report's tables as Markdown, CSV, LaTeX and terminal output, all from the same lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table as RichTable

from sliceformer_lab.commands.report.coverage import Coverage
from sliceformer_lab.commands.report.lines import SAME_COST, Cost, Line, Published
from sliceformer_lab.measures.statistics import Interval
from sliceformer_lab.runs.collect import Collection
from sliceformer_lab.runs.groups import Table, at_scale, plain

Section = tuple[Table, list[Line]]
Column = Callable[[Line, float], str]

PERCENT = 100.0
LEGEND = (
    "Each mean is over seeds, with its 95 % interval: a bootstrap for six seeds or more, Student's t for fewer. "
    "`over examples` is the 95 % interval over resampled test examples, with the trained models fixed. "
    "`failures at chance` is the mean if failed and diverged runs score at chance. "
    "`difference` is the mean difference from the named row, on equal seeds and splits. "
    "`could show` is the true difference that this number of pairs would detect in 80 % of repetitions. "
    "`verdict` is an exact sign-flip test of at least six pairs at 5 %, Holm-adjusted over the table. "
    f"`*` marks a cost that differs by more than {100 * SAME_COST:.0f} % from the reference attention. "
    "`samples/s` is measured in training. "
    "`budget` is the cost that a row's width was solved for. "
    "`≠` marks a published number under another protocol; the notes list the differences."
)
COVERAGE = "Published numbers and their runs"
LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "≠": r"$\neq$"}
LATEX |= {"×": r"$\times$", "±": r"$\pm$"} | {sign: f"\\{sign}" for sign in "&%$#_{}"}


def markdown(found: Collection, sections: Sequence[Section]) -> str:
    """The whole report."""
    parts = [f"# {heading(found)}", counts(found), LEGEND]
    for table, lines in sections:
        parts += [f"## {table.title}", *usual(table), _markdown_table(*cells(table, lines)), *_notes(table, lines)]
    if rest := leftovers(found, sections):
        parts += ["## Not in a table", "\n".join(f"- {line}" for line in rest)]
    return "\n\n".join(parts) + "\n"


def coverage_page(covered: Sequence[Coverage]) -> str:
    """coverage.md: a row for each number that the papers print."""
    return (
        "\n\n".join([f"# {COVERAGE}", coverage_counts(covered), _markdown_table(*coverage_cells(covered, "`"))]) + "\n"
    )


def coverage_counts(covered: Sequence[Coverage]) -> str:
    """A sentence: how many of the published numbers have a command and a run."""
    with_command = sum(bool(line.command) for line in covered)
    run = sum(line.has_run for line in covered)
    return f"{len(covered)} published numbers: {with_command} have a command, {run} have been run in this folder."


def coverage_cells(covered: Sequence[Coverage], quote: str = "") -> tuple[list[str], list[list[str]]]:
    """Column heads and rows; commands are enclosed in `quote`."""
    rows = [
        [
            f"{line.result.cell.paper} {line.result.cell.table}",
            *(line.result.cell.task, " ".join(filter(None, (line.result.cell.attention, line.result.cell.variant)))),
            *(line.result.cell.metric, line.result.printed),
            f"{quote}{line.command}{quote}" if line.command else f"none: {line.reason}",
            line.status,
        ]
        for line in covered
    ]
    return ["table", "task", "attention", "metric", "printed", "command", "runs here"], rows


def latex(sections: Iterable[Section]) -> str:
    """A LaTeX table (booktabs) for each section."""
    parts = ["% needs \\usepackage{booktabs}"]
    for table, lines in sections:
        names, rows = cells(table, lines)
        body = [" & ".join(map(_tex, row)) + r" \\" for row in rows]
        head = " & ".join(map(_tex, names)) + r" \\"
        parts += [
            r"\begin{table}",
            rf"\caption{{{_tex(table.title)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(names) - 1)}}}",
            *(r"\toprule", head, r"\midrule", *body, r"\bottomrule"),
            *(r"\end{tabular}", r"\end{table}"),
        ]
    return "\n".join(parts) + "\n"


def frame(sections: Iterable[Section]) -> pd.DataFrame:
    """A row for each line, with unrounded numbers in the units of the summaries."""
    return pd.DataFrame([_record(table, line) for table, lines in sections for line in lines])


def show(console: Console, found: Collection, sections: Iterable[Section]) -> None:
    """Print the tables with their main columns; the files have all columns."""
    sections = list(sections)
    for table, lines in sections:
        names, rows = cells(table, lines, brief=True)
        console.print(f"\n{table.title}", style="bold", markup=False, soft_wrap=True)
        rich_table = RichTable(*names)
        for row in rows:
            rich_table.add_row(*row)
        console.print(rich_table, markup=False)
    for line in leftovers(found, sections):
        console.print(line, markup=False, soft_wrap=True)
    console.print(counts(found), markup=False, soft_wrap=True)


def leftovers(found: Collection, sections: Iterable[Section]) -> list[str]:
    """Sentences on what belongs to no row: unreadable folders, and planned jobs without a row."""
    in_rows = {job for _, lines in sections for line in lines for job in line.row.missing}
    return [
        *(f"{name} cannot be read: {why}" for name, why in found.unreadable.items()),
        *(f"planned, but left no readable run: {job}" for job in found.missing if job not in in_rows),
    ]


def heading(found: Collection) -> str:
    """The title: the folder, and the scales of its runs unless all are full."""
    return f"Runs below {found.folder.name or found.folder}{at_scale(found.runs)}"


def counts(found: Collection) -> str:
    """A sentence: the number of runs by status."""
    ended = [run.status for run in found.runs]
    counts = {status: ended.count(status) for status in sorted(set(ended), key=lambda status: (status != "ok", status))}
    counts |= {"unreadable": len(found.unreadable), "planned and missing": len(found.missing)}
    words = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    if not found.runs:
        return f"No run can be read: {words}."
    return f"{len(found.runs)} run{'s' if len(found.runs) > 1 else ''}: {words}."


def usual(table: Table) -> list[str]:
    """A sentence on the options that most rows share; empty if the rows differ in none."""
    options = ", ".join(f"{name}={plain(value)}" for name, value in table.usual.items())
    return [f"Unless a row says otherwise: {options}."] if options else []


def _columns(metric: str, brief: bool) -> dict[str, Column]:
    """Column head -> function of a line and the metric's scale that returns the cell."""
    columns: dict[str, Column] = {
        "n": lambda line, _: _runs(line),
        metric: lambda line, scale: _number(line.mean, scale) + _interval(line.over_seeds, scale),
        "over examples": lambda line, scale: _interval(line.over_examples, scale).strip(),
        "failures at chance": lambda line, scale: _number(line.mean_with_failures, scale),
        "difference": lambda line, scale: _difference(line, scale),
        "could show": lambda line, scale: _number(line.test.smallest, scale) if line.test else "",
        "verdict": lambda line, _: _verdict(line),
        "budget": lambda line, _: line.budget,
        "parameters": lambda line, _: _cost(line.parameters),
        "multiply-adds": lambda line, _: _cost(line.multiply_adds),
        "samples/s": lambda line, _: _cost(line.speed),
        "published": lambda line, scale: _printed(line.published, scale),
        "to published": lambda line, scale: _to_published(line.published, scale),
    }
    left_out = ("over examples", "could show", "multiply-adds") if brief else ()
    return {name: column for name, column in columns.items() if name not in left_out}


def cells(table: Table, lines: Sequence[Line], brief: bool = False) -> tuple[list[str], list[list[str]]]:
    """Column heads and rows, without empty columns."""
    scale = _scale(table.metric)
    columns = _columns(headed(table.metric), brief)
    filled = {name: [column(line, scale) for line in lines] for name, column in columns.items()}
    shown_columns = {name: texts for name, texts in filled.items() if any(texts)}
    names = ["attention", *table.by, *shown_columns]
    rows = [
        [line.row.label, *map(str, line.row.factors), *(texts[i] for texts in shown_columns.values())]
        for i, line in enumerate(lines)
    ]
    return names, rows


def headed(metric: str) -> str:
    """The head of a metric's column, with its unit."""
    return f"{metric}, %" if _scale(metric) == PERCENT else metric


def shown(value: float | None, metric: str) -> str:
    """A metric's value in the unit of its column; '' for None."""
    return _number(value, _scale(metric))


def _scale(metric: str) -> float:
    return PERCENT if re.search("accuracy|iou", metric) else 1.0


def _runs(line: Line) -> str:
    """Number of runs done and planned, and the statuses of the others."""
    others = ", ".join(f"{count} {status}" for status, count in line.statuses.items() if status != "ok")
    return f"{len(line.values)} of {line.planned}" + (f": {others}" if others else "")


def _difference(line: Line, scale: float) -> str:
    if line.test is None or line.test.difference is None:
        return ""
    return f"{scale * line.test.difference:+.4g} to {line.test.against}"


def _verdict(line: Line) -> str:
    if line.test is None:
        return ""
    return line.test.verdict if line.test.p is None else f"{line.test.verdict} (p = {line.test.p:.3g})"


def _cost(cost: Cost) -> str:
    if cost.value is None:
        return ""
    ratio = "" if cost.ratio is None else f" ({cost.ratio:.2f} ×{' *' if cost.is_other else ''})"
    size = f"{cost.value:,.0f}" if cost.value >= 100 else f"{cost.value:.3g}"
    return f"{size}{ratio}"


def _printed(published: Published | None, scale: float) -> str:
    """The published number, marked under another protocol, and the range if papers differ."""
    if published is None:
        return ""
    own = published.results[0]
    number = own.printed if own.value is None else _number(own.value, scale)
    mark = " ≠" if published.reasons else ""
    span = published.span
    differ = span is not None and span[0] != span[1]
    spread = f" (papers {_number(span[0], scale)} to {_number(span[1], scale)})" if span and differ else ""
    return f"{number}{mark}{spread}"


def _to_published(published: Published | None, scale: float) -> str:
    return "" if published is None or published.difference is None else f"{scale * published.difference:+.4g}"


def _notes(table: Table, lines: Iterable[Line]) -> list[str]:
    """The remarks on a table's lines as one Markdown list; empty if there is none."""
    remarks = []
    for line in lines:
        name = " ".join(
            [line.row.label, *(f"{key}={value}" for key, value in zip(table.by, line.row.factors, strict=True))]
        )
        remarks += [f"- {name}: {note}" for note in (*line.notes, *published_notes(line.published))]
    return ["\n".join(remarks)] if remarks else []


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


def _record(table: Table, line: Line) -> dict[str, Any]:
    """A line of the CSV file: column -> value."""
    test, published = line.test, line.published
    span = published.span if published else None
    return {
        "table": table.title,
        "scale": line.row.runs[0].scale,
        "attention": line.row.attention,
        "options": line.row.label.removeprefix(line.row.attention).strip(),
        **dict(zip(table.by, line.row.factors, strict=True)),
        "metric": table.metric,
        "done": len(line.values),
        "planned": line.planned,
        "statuses": "; ".join(f"{count} {status}" for status, count in line.statuses.items()),
        "mean": line.mean,
        **_bounds("seeds", line.over_seeds),
        **_bounds("examples", line.over_examples),
        "mean_failures_at_chance": line.mean_with_failures,
        "against": test.against if test else None,
        "pairs": test.pairs if test else None,
        "difference": test.difference if test else None,
        "smallest_difference": test.smallest if test else None,
        "p_holm": test.p if test else None,
        "verdict": test.verdict if test else None,
        "budget": line.budget,
        **_cost_record("parameters", line.parameters),
        **_cost_record("multiply_adds", line.multiply_adds),
        **_cost_record("samples_per_second", line.speed),
        "published": published.value if published else None,
        "published_low": span[0] if span else None,
        "published_high": span[1] if span else None,
        "published_sources": "; ".join(str(result.cell) for result in published.results) if published else None,
        "published_difference": published.difference if published else None,
        "not_comparable": "; ".join(published.reasons) if published else None,
        "notes": "; ".join(line.notes),
        "runs": "; ".join(run.name for run in line.row.runs),
    }


def _cost_record(name: str, cost: Cost) -> dict[str, float | None]:
    return {name: cost.value, f"{name}_ratio": cost.ratio}


def _bounds(name: str, interval: Interval | None) -> dict[str, float | str | None]:
    low, high, how = (interval.low, interval.high, interval.how) if interval else (None, None, None)
    return {f"{name}_low": low, f"{name}_high": high, f"{name}_how": how}


def _number(value: float | None, scale: float) -> str:
    """Two decimals of a percentage, else four significant digits."""
    if value is None:
        return ""
    return f"{scale * value:.2f}" if scale == PERCENT else f"{value:.4g}"


def _interval(interval: Interval | None, scale: float) -> str:
    return "" if interval is None else f" [{_number(interval.low, scale)}, {_number(interval.high, scale)}]"


def _markdown_table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _tex(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in text)
