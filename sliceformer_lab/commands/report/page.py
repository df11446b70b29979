"""A report as one self-contained HTML file: tables, figures, runs, their options, and the published numbers.

`page/` holds the HTML template, its style and its script. The content is one block of JSON that the script writes as
text, never as markup: names, errors and options come from untrusted files.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from sliceformer_lab.cli.help import first_comments
from sliceformer_lab.commands.report.figures.plot_rows import PageFigure
from sliceformer_lab.commands.report.lines import Line
from sliceformer_lab.commands.report.run_details import run_details
from sliceformer_lab.commands.report.table_cells import (
    MINOR,
    Section,
    cells,
    describe_common_options,
    largest_first,
    published_notes,
    reference_cells,
)
from sliceformer_lab.commands.report.tables import LEGEND, counts, describe_leftovers, heading, with_results
from sliceformer_lab.measures.drawing import svg_legend, svg_panels
from sliceformer_lab.measures.metric_scale import format_heading, format_value, less_is_better
from sliceformer_lab.runs.collect import Collection, RunRecord
from sliceformer_lab.runs.controls import is_control
from sliceformer_lab.runs.groups import ABSENT, Table, format_option

PROGRAM = "python -m sliceformer_lab"
# of a summary, shown next to the options
FACTS = ("task", "attention", "recipe", "seed", "git_commit", "versions", "machine", "protocol")
COST_COLUMNS = {"parameters": "parameters", "multiply-adds": "multiply_adds", "samples/s": "speed"}  # of a Line


def page(
    found: Collection, sections: Sequence[Section], plots: Sequence[PageFigure], pictures: Sequence[Path] = ()
) -> str:
    """The whole HTML file. `pictures` are the files of the figures, relative to it."""
    folder = files(__package__).joinpath("page")
    template, style, script = (
        folder.joinpath(name).read_text(encoding="utf-8") for name in ("template.html", "page.css", "page.js")
    )
    content = json.dumps(
        _describe_page(found, sections, plots, pictures), ensure_ascii=False, allow_nan=False, default=str
    )
    for letter, code in {"<": r"\u003c", ">": r"\u003e", "&": r"\u0026"}.items():  # which could end its element
        content = content.replace(letter, code)
    parts = {"title": escape(heading(found)), "style": style, "content": content, "script": script}
    return re.sub(r"\{\{ (\w+) \}\}", lambda place: parts[place[1]], template)


def _describe_page(
    found: Collection, sections: Sequence[Section], plots: Sequence[PageFigure], pictures: Sequence[Path]
) -> dict[str, Any]:
    """The content of the page as plain values. A run is referred to by its index in `runs`."""
    numbers = {run.folder: number for number, run in enumerate(found.runs)}
    metrics = {
        run.folder: table.metric
        for table, lines in sections
        for line in lines
        for run in (*line.row.runs, *line.row.repeated)
    }
    commits = Counter(run.summary.git_commit or "unknown" for run in found.runs)
    details, tests = run_details(found.runs, sections)
    run_columns = list(_run_cells(found.runs[0], metrics)) if found.runs else []
    return {
        "heading": heading(found),
        "made": datetime.now().astimezone().isoformat(timespec="seconds"),
        "counts": counts(found),
        "commits": commits.most_common(),
        "legend": LEGEND,
        "about": first_comments("attention"),
        "tables": [_build_table(table, lines, numbers) for table, lines in with_results(sections)],
        "leftovers": describe_leftovers(found, sections),
        "figures": [_build_figure(figure, pictures) for figure in plots],
        "run_columns": run_columns,
        "runs_largest_first": [
            i
            for i, name in enumerate(run_columns)
            if name in {"result", *map(format_heading, metrics.values())}
            and not any(map(less_is_better, metrics.values()))
        ],
        "runs": [_build_run(run, metrics) | more for run, more in zip(found.runs, details, strict=True)],
        "tests": tests,
        "options": _compress_facts([_format_facts(run) for run in found.runs]),
    }


def _build_table(table: Table, lines: Sequence[Line], numbers: Mapping[Path, int]) -> dict[str, Any]:
    columns, rows = cells(table, lines)
    return {
        "title": table.title,
        "usual": describe_common_options(table),
        "columns": columns,
        "minor": [i for i, name in enumerate(columns) if name in MINOR],
        "largest_first": [i for i, name in enumerate(columns) if largest_first(table, name)],
        "rows": [_build_row(line, texts, columns, numbers) for line, texts in zip(lines, rows, strict=True)]
        + [_build_reference(remark, texts) for remark, texts in reference_cells(table, columns)],
    }


def _build_row(line: Line, texts: list[str], columns: list[str], numbers: Mapping[Path, int]) -> dict[str, Any]:
    """A row of a table. `marked` are the cells whose cost differs from the reference by more than 5 %."""
    marked = [columns.index(name) for name, cost in COST_COLUMNS.items() if getattr(line, cost).is_other]
    return {
        "attention": line.row.attention,
        "control": is_control(line.row.attention),
        "cells": texts,
        "statuses": list(line.statuses),
        "marked": marked,
        "published": columns.index("published") if line.published is not None else None,
        "published_notes": published_notes(line.published),
        "reasons": list(line.published.reasons) if line.published is not None else [],
        "notes": list(line.notes),
        "runs": [numbers[run.folder] for run in (*line.row.runs, *line.row.repeated)],
    }


def _build_reference(remark: str, texts: list[str]) -> dict[str, Any]:
    """A reference as a row of a table without runs."""
    empty: dict[str, Any] = dict.fromkeys(("statuses", "marked", "published_notes", "reasons", "runs"), ())
    facts = {"attention": texts[0], "control": False, "cells": texts, "published": None, "notes": [remark]}
    return empty | facts


def _build_run(run: RunRecord, metrics: Mapping[Path, str]) -> dict[str, Any]:
    metric, command = metrics[run.folder], run.summary.command
    return {
        "name": run.name,
        "attention": run.attention,
        "seed": run.summary.seed,
        "status": run.status,
        "result": format_value(run.metric(metric), metric),
        "cells": list(_run_cells(run, metrics).values()),
        "error": run.summary.error or "" if run.status != "ok" else "",
        "command": "" if command is None else shlex.join([*PROGRAM.split(), *command]),
    }


def _run_cells(run: RunRecord, metrics: Mapping[Path, str]) -> dict[str, str]:
    """Column head -> cell of the list of runs; the metric is a column head if all runs share it."""
    metric, seconds = metrics[run.folder], run.summary.wall_seconds
    result = format_value(run.metric(metric), metric)
    has_one_metric = len(set(metrics.values())) == 1
    known: dict[str, Any] = {
        "run": run.name,
        "task": run.task,
        "data": run.data,
        "attention": run.attention,
        "seed": run.summary.seed,
        "status": run.status,
        **(
            {format_heading(metric): result} if has_one_metric else {"result": result, "metric": format_heading(metric)}
        ),
        "seconds": None if seconds is None else f"{seconds:.0f}",
        "started": (run.summary.started or "").replace("T", " ")[:16],
        "commit": run.summary.git_commit,
    }
    return {name: "" if value is None else str(value) for name, value in known.items()}


def _format_facts(run: RunRecord) -> dict[str, str]:
    """Options and FACTS of a run as text."""
    facts, recorded = dict(run.options), run.summary.recorded()
    for name in FACTS:
        value = recorded.get(name)
        facts |= {f"{name}.{key}": part for key, part in value.items()} if isinstance(value, dict) else {name: value}
    return {name: format_option(value) for name, value in facts.items()}


def _compress_facts(found: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Facts of runs, compressed: the most common values, and for each run the exceptions, as indices into `values`."""
    names = sorted({name for facts in found for name in facts})
    values: dict[str, int] = {}
    placed = [[values.setdefault(facts.get(name, ABSENT), len(values)) for name in names] for facts in found]
    common = [Counter(column).most_common(1)[0][0] for column in zip(*placed, strict=True)]
    return {
        "names": names,
        "values": list(values),
        "common": common,
        "others": [{i: value for i, value in enumerate(row) if value != common[i]} for row in placed],
    }


def _build_figure(figure: PageFigure, pictures: Sequence[Path]) -> dict[str, Any]:
    paths = [path.as_posix() for path in pictures if path.stem == figure.name]
    texts = {name: getattr(figure, name) for name in ("name", "title", "caption", "alt", "table")}
    return texts | {"panels": svg_panels(figure), "legend": svg_legend(figure), "pictures": paths}
