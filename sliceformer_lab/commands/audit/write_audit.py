"""Writes the page of an audit, Markdown, JSON and pictures, and prints its tables and its sentence."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from sliceformer_lab.cli.console import table_console
from sliceformer_lab.commands.audit.audit_options import BASE, SHOWN, AuditOptions
from sliceformer_lab.commands.audit.audit_results import Audit, AxisResult
from sliceformer_lab.commands.audit.audit_tables import markdown_table, rate_table, row_table, verdict_table
from sliceformer_lab.commands.audit.draw_audit import draw_differences, draw_learning_rates
from sliceformer_lab.commands.audit.sentences import amount, missing_rows, unit, verdict_counts, verdict_sentence
from sliceformer_lab.commands.audit.verdicts import Outcome
from sliceformer_lab.runs.files import write_json, write_text

WIDTH = 160  # characters of printed tables in files and pipes
PICTURE, RATES = "differences.png", "learning_rate.png"


def write_audit(audit: Audit, folder: Path) -> None:
    """Write audit.md, results.json and the pictures into `folder`, and print the tables and the sentence last."""
    folder.mkdir(parents=True, exist_ok=True)
    draw_differences(audit, folder / PICTURE)
    draw_learning_rates(audit, folder / RATES)
    write_json(folder / "results.json", as_json(audit))
    write_text(folder / "audit.md", markdown(audit))
    console = table_console(WIDTH)
    for result in audit.results:
        for title, table in (
            (f"{SHOWN[result.axis]}: verdicts", verdict_table(audit, result)),
            ("rows", row_table(audit, result)),
        ):
            shown = Table(*table[0], title=title, title_justify="left")
            for row in table[1:]:
                shown.add_row(*row)
            console.print(shown)
    for line in (str(folder / "audit.md"), *page_notes(audit), verdict_sentence(audit)):
        console.print(line, markup=False, soft_wrap=True)


def markdown(audit: Audit) -> str:
    """The content of audit.md."""
    lines = [
        f"# Audit: {audit.options.subject} on {audit.task}",
        "",
        f"**{verdict_sentence(audit)}**",
        "",
        f"![Paired differences]({PICTURE})",
        "",
        "```bash",
        repeat_command(audit.options),
        "```",
        "",
        *protocol(audit),
        "",
    ]
    for result in audit.results:
        lines += [f"## At {SHOWN[result.axis]}", "", *markdown_table(verdict_table(audit, result)), ""]
        lines += [*markdown_table(row_table(audit, result)), ""]
    lines += [
        "Differences are those of the subject less the row, turned so that + favours the subject. ± is the wider of "
        "the 95 % interval over seeds and that over test examples of the fixed models. `could have been found` is the "
        "true difference that the exact test would find in 4 of 5 audits with these seeds and comparisons.",
        "",
        "## Learning rates",
        "",
        f"![Validation score over learning rate]({RATES})",
        "",
        *markdown_table(rate_table(audit)),
        "",
        "From the trials alone. `width`: decades of learning rate within 5 % of the best. `regret`: what the row would "
        f"lose at the rate that is best for all on average, and at the best rate of {BASE}.",
        "",
        *(f"- {line}" for line in page_notes(audit)),
        *_failures(audit),
    ]
    return "\n".join(lines) + "\n"


def protocol(audit: Audit) -> Iterator[str]:
    """What was done, as sentences."""
    options, declared = audit.options, audit.declaration
    seeds, points = options.reporting_seeds, audit.tuning.points
    trials = f"{len(points.points)} {'random points' if points.is_random else 'learning rates'}"
    tried = f"seed{'s' if options.tuning_seeds[1:] else ''} {', '.join(map(str, options.tuning_seeds))}"
    yield (
        f"Declared on {declared.time} (digest {declared.digest}), before the first run: {len(options.against)} "
        f"comparisons of {options.subject}, margin {_margin(audit)}. Every row tried the same {trials} with {tried}, "
        f"at {SHOWN[options.axes[0]]} and scored on validation; a run that diverged counts as chance. No trial scored "
        f"the test set. The chosen values were trained with the seeds {seeds.start} to {seeds.stop - 1}, and each of "
        "these runs scored the test set once. Tests are exact sign-flip tests of the paired differences, with Holm's "
        "correction over all declared comparisons."
    )
    seen = len(audit.evaluations)
    yield f"\nThe ledger counts {seen} evaluations of this test set so far, those of this audit included."
    if audit.times is not None:
        yield (
            f"\nEqual time: {audit.times.machine}; load {audit.times.load:.1f} before. Rows have their own sizes and "
            f"the steps that take as long as the {audit.times.steps:,} of {BASE}, fixed before training, at most four "
            "times and at least a quarter. The budget holds for this machine only."
        )


def _margin(audit: Audit) -> str:
    margin = audit.margin
    if margin.share is not None:
        return f"{margin.share:.0%} of the other row's {unit(audit.metric)}"
    return "none" if margin.amount is None else amount(margin.amount, audit.metric)


def page_notes(audit: Audit) -> list[str]:
    """Remarks that are no part of the sentence."""
    notes = [*verdict_counts(audit)]
    if missing := missing_rows(audit):
        notes.append(missing)
    commits = sorted({str(run.summary.get("git_commit")) for run in audit.runs})
    if len(commits) > 1:
        notes.append(f"Runs of different versions of the code: {', '.join(commits)}.")
    return notes


def repeat_command(options: AuditOptions) -> str:
    """The command line of this audit."""
    words = [
        f"attention={options.subject}",
        f"against={','.join(options.against)}",
        *(word for word in options.words if not word.startswith("paths.")),
        f"axes={','.join(options.axes)}",
        f"seeds={options.seeds}",
        f"tuning_seeds=[{','.join(map(str, options.tuning_seeds))}]",
        f"trials={options.trials}" if options.trials else f"rates=[{','.join(f'{one:g}' for one in options.rates)}]",
        *([] if options.margin is None else [f"margin={options.margin:g}"]),
        *(["force_time=true"] if options.force_time else []),
    ]
    return f"python -m sliceformer_lab audit {' '.join(map(shlex.quote, words))}"


def as_json(audit: Audit) -> dict[str, Any]:
    """Everything the page is made of."""
    tuning = audit.tuning
    return {
        "sentence": verdict_sentence(audit),
        "command": repeat_command(audit.options),
        "declaration": dict(audit.declaration.content),
        "commits": sorted({str(run.summary.get("git_commit")) for run in audit.runs}),
        "axes": {result.axis: _axis_as_json(result) for result in audit.results},
        "trials": {name: [asdict(trial) for trial in trials] for name, trials in tuning.trials.items()},
        "chosen": {name: trial and asdict(trial.point) for name, trial in tuning.chosen.items()},
        "at_edge": dict(tuning.at_edge),
        "sensitivity": {name: asdict(one) for name, one in tuning.sensitivity.items()},
        "references": audit.references,
        "times": audit.times and audit.times.as_json(),
        "refused": dict(audit.refused),
        "evaluations_of_this_test_set": len(audit.evaluations),
    }


def _axis_as_json(result: AxisResult) -> dict[str, Any]:
    return {
        "obstacle": result.obstacle,
        "scores": {name: {str(seed): value for seed, value in found.items()} for name, found in result.scores.items()},
        "lost": {name: list(reasons) for name, reasons in result.lost.items() if reasons},
        "outcomes": [_outcome_as_json(one) for one in result.outcomes],
    }


def _outcome_as_json(one: Outcome) -> dict[str, Any]:
    return {**asdict(one), "differences": {str(seed): value for seed, value in one.differences.items()}}


def _failures(audit: Audit) -> Iterator[str]:
    """A line for each row that takes no part and each lost run."""
    lines = [f"- {name} takes no part: {reason}" for name, reason in audit.refused.items()]
    for row in audit.rows:
        lines += [f"- {row.attention} at {SHOWN[axis]}: {reason}" for axis, reason in row.refused.items()]
    for result in audit.results:
        lines += [
            f"- {name} at {SHOWN[result.axis]}, {reason}" for name, found in result.lost.items() for reason in found
        ]
    if lines:
        yield from ("", "## What did not run", "", *dict.fromkeys(lines))
