"""Formats a report's tables as Markdown, CSV, LaTeX and terminal output, all from the same lines."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from sliceformer_lab.commands.report.lines import SAME_COST, Line
from sliceformer_lab.commands.report.table_cells import (
    Section,
    all_cells,
    describe_common_options,
    published_notes,
    references_in,
)
from sliceformer_lab.measures.statistics import MIN_CROSSED_SEEDS
from sliceformer_lab.runs.collect import Collection, MissingRun
from sliceformer_lab.runs.groups import Table
from sliceformer_lab.runs.plain_text import csv_cell, in_latex, in_markdown, markdown_table
from sliceformer_lab.runs.printed_table import print_tables
from sliceformer_lab.runs.table_title import at_scale

LEGEND = (
    "Rows are ordered by their mean over seeds, best first, or with `by=` by attention and option. "
    "A mean has its 95 % interval in brackets (Student's t) from three seeds on, cut off where the metric ends; for "
    "two seeds, and for equal results, which show no spread, the lowest and the highest follow in parentheses. "
    "`interval over` says what was drawn at random: seeds and test examples together, whose variances add, or seeds "
    "alone where the predictions of examples are not known, or splits, with a correction for training sets that "
    "overlap (Nadeau and Bengio 2003). "
    "`failures at chance` is the mean if failed and diverged runs score at chance. "
    "`difference` is the mean difference from the named row, on equal seeds and splits. "
    "`smallest detectable` is the true difference that the table's tests would detect in 80 % of repetitions. "
    "`verdict` is Student's test of at least three pairs at 5 %, over what the intervals are over, "
    "Holm-adjusted over the table. "
    f"With fewer than {MIN_CROSSED_SEEDS} seeds `p` is the larger one of that test and of the test over seeds alone, "
    "because three or four seeds agree by accident too often: it then shows only differences that are large beside "
    "their spread over seeds. A large `p` never shows that two rows are equal. "
    f"`*` marks a cost that differs by more than {100 * SAME_COST:.0f} % from the reference attention. "
    "`samples/s` is measured in training. "
    "`budget` is the cost that a row's width was solved for. "
    "A `reference` is a simple model, or the constant that suits the training data best, on the same split. "
    "Chance is a constant chosen for the test set itself, so it can be better than that reference. "
    "`≠` marks a published number under another protocol; the notes list the differences."
)


def markdown(found: Collection, sections: Sequence[Section]) -> str:
    """The whole report."""
    parts = [f"# {in_markdown(heading(found))}", in_markdown(counts(found)), LEGEND]
    for table, lines in with_results(sections):
        names, rows = all_cells(table, lines)
        parts += [f"## {in_markdown(table.title)}", *map(in_markdown, describe_common_options(table))]
        parts += [markdown_table(*([*map(in_markdown, row)] for row in (names, *rows))), *_list_notes(table, lines)]
    if rest := describe_leftovers(found, sections):
        parts += ["## Not in a table", "\n".join(f"- {in_markdown(line)}" for line in rest)]
    return "\n\n".join(parts) + "\n"


def latex(sections: Iterable[Section]) -> str:
    """A LaTeX table (booktabs) for each section."""
    parts = ["% needs \\usepackage{booktabs}"]
    for table, lines in with_results(sections):
        names, rows = all_cells(table, lines)
        body = [" & ".join(map(in_latex, row)) + r" \\" for row in rows]
        head = " & ".join(map(in_latex, names)) + r" \\"
        parts += [
            r"\begin{table}",
            rf"\caption{{{in_latex(table.title)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(names) - 1)}}}",
            *(r"\toprule", head, r"\midrule", *body, r"\bottomrule"),
            *(r"\end{tabular}", r"\end{table}"),
        ]
    return "\n".join(parts) + "\n"


def frame(sections: Iterable[Section]) -> pd.DataFrame:
    """A row for each line and reference, with unrounded numbers in the units of the summaries; no formulas."""
    records = []
    for table, lines in sections:
        records += [_build_record(table, line) for line in lines]
        records += [
            {"table": table.title, "attention": f"reference: {one.name}", "metric": table.metric, "mean": one.value}
            for one in references_in(table)
        ]
    return pd.DataFrame(records).map(csv_cell).rename(columns=lambda name: str(csv_cell(name)))


def show(found: Collection, sections: Iterable[Section]) -> None:
    """Print the tables with their main columns; the files have all columns."""
    sections = list(sections)
    shown = [(table.title, *all_cells(table, lines, brief=True)) for table, lines in with_results(sections)]
    tables = {title: [names, *rows] for title, names, rows in shown}
    print_tables(tables, [*describe_leftovers(found, sections), counts(found)])


def with_results(sections: Iterable[Section]) -> list[Section]:
    """The sections in which a run has finished; `describe_leftovers` has a line for each other one."""
    return [section for section in sections if section[0].has_result]


def _without_result(table: Table, lines: Iterable[Line]) -> str:
    """A sentence on a table in which no run has finished: how its runs ended, and why."""
    runs = [run for line in lines for run in (*line.row.runs, *line.row.repeated)]
    ends = Counter(run.status for run in runs)
    errors = Counter(run.error for run in runs if run.error)
    reasons = "; ".join(error if count == 1 else f"{count} x {error}" for error, count in errors.items())
    return f"{table.title} ({', '.join(f'{n} {status}' for status, n in ends.items())}){f': {reasons}' * bool(reasons)}"


def describe_leftovers(found: Collection, sections: Iterable[Section]) -> list[str]:
    """Sentences on what is in no table: unreadable folders, tables without a finished run, and planned jobs."""
    sections = list(sections)
    in_rows = {job for _, lines in sections for line in lines for job in line.row.missing}
    return [
        *(_without_result(*section) for section in sections if not section[0].has_result),
        *(f"{name} cannot be read: {why}" for name, why in found.unreadable.items()),
        *_lost_jobs([job for job in found.missing if job not in in_rows]),
    ]


def _lost_jobs(jobs: Sequence[MissingRun]) -> list[str]:
    """A sentence on each job without a run; one for all jobs of a sweep that were refused for one reason."""
    refused: dict[tuple[str, str], list[MissingRun]] = defaultdict(list)
    for job in jobs:
        refused[job.sweep, job.reason or str(job)].append(job)
    return [
        f"planned, but left no readable run: {alike[0]}"
        if len(alike) == 1
        else f"planned, but left no readable run: {sweep}, jobs {', '.join(str(job.job) for job in alike)} ({reason})"
        for (sweep, reason), alike in refused.items()
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


def _list_notes(table: Table, lines: Iterable[Line]) -> list[str]:
    """The remarks on a table's lines as one Markdown list; empty if there is none."""
    remarks = []
    for line in lines:
        name = " ".join(
            [line.row.label, *(f"{key}={value}" for key, value in zip(table.by, line.row.factors, strict=True))]
        )
        remarks += [f"- {in_markdown(f'{name}: {note}')}" for note in (*line.notes, *published_notes(line.published))]
    return ["\n".join(remarks)] if remarks else []


def _build_record(table: Table, line: Line) -> dict[str, Any]:
    """A line of the CSV file: column -> value."""
    test, published, interval = line.test, line.published, line.interval
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
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "interval": interval.how if interval else None,
        "mean_failures_at_chance": line.mean_with_failures,
        "against": test.against if test else None,
        "pairs": test.pairs if test else None,
        "difference": test.difference if test else None,
        "smallest_difference": test.smallest if test else None,
        "p_holm": test.p if test else None,
        "verdict": test.verdict if test else None,
        "budget": line.budget,
        "parameters": line.parameters.value,
        "parameters_ratio": line.parameters.ratio,
        "multiply_adds": line.multiply_adds.value,
        "multiply_adds_ratio": line.multiply_adds.ratio,
        "samples_per_second": line.speed.value,
        "samples_per_second_ratio": line.speed.ratio,
        "published": published.value if published else None,
        "published_low": span[0] if span else None,
        "published_high": span[1] if span else None,
        "published_sources": "; ".join(str(result.cell) for result in published.results) if published else None,
        "published_difference": published.difference if published else None,
        "not_comparable": "; ".join(published.reasons) if published else None,
        "notes": "; ".join(line.notes),
        "runs": "; ".join(run.name for run in line.row.runs),
    }
