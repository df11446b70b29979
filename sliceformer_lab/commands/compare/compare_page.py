"""Writes the page of a comparison, Markdown, JSON and pictures, prints its tables and its sentence, and sends them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from sliceformer_lab.commands.compare.compare_options import AXIS_NAMES, BASE_ROW, repeat_command
from sliceformer_lab.commands.compare.compare_tables import (
    Rows,
    as_records,
    rate_table,
    row_table,
    verdict_table,
    way_table,
)
from sliceformer_lab.commands.compare.draw import draw_differences, draw_learning_rates
from sliceformer_lab.commands.compare.results import Comparison
from sliceformer_lab.commands.compare.sentences import (
    missing_rows,
    order_note,
    unit_of,
    verdict_sentence,
    version_note,
    with_unit,
)
from sliceformer_lab.commands.compare.verdicts import Outcome
from sliceformer_lab.measures.statistics import MIN_CROSSED_SEEDS
from sliceformer_lab.runs.files import write_json, write_text
from sliceformer_lab.runs.plain_text import counted, markdown_table
from sliceformer_lab.runs.printed_table import print_tables
from sliceformer_lab.training.results.observers import Observer
from sliceformer_lab.training.results.wandb_names import is_wandb
from sliceformer_lab.training.results.wandb_runs import send_results

PICTURE, RATES = "differences.png", "learning_rate.png"


def write_page(found: Comparison, folder: Path) -> None:
    """Write WORD.md, results.json and the pictures into `folder`, and print the tables and the sentence last."""
    folder.mkdir(parents=True, exist_ok=True)
    if found.outcomes:
        draw_differences(found, folder / PICTURE)
    draw_learning_rates(found, folder / RATES)
    write_json(folder / "results.json", as_json(found))
    page = folder / f"{found.word}.md"
    write_text(page, markdown(found))
    print_tables(tables_of(found), [str(page), *page_notes(found), verdict_sentence(found)])


def send_page(found: Comparison, report: Path) -> None:
    """Sends the sentence, tables and figures of the page to W&B if the runs are there; a failure is a warning."""
    logger, options = found.rows[0].plan.plain["logger"], found.options
    if not is_wandb(logger):
        return
    described = {"task": found.task, "attention": options.subject, "against": list(options.others)}
    tables = {f"comparison/{name.replace(' ', '_')}": as_records(rows) for name, rows in tables_of(found).items()}
    send = partial(
        send_results,
        found.folder.parent,
        f"{found.word} of {options.subject} ({found.task})",
        logger,
        notes=verdict_sentence(found),
        job_type=found.word,
        tags=[found.task, options.subject],
        config=described | {"command": command_of(found)},
        tables=tables,
        pictures={Path(name).stem: (str(report / name), "") for name in (PICTURE, RATES) if (report / name).exists()},
        numbers={"verdict": verdict_sentence(found), **numbers_of(found)},
    )
    Observer("sending the comparison to W&B").run(send)


def numbers_of(found: Comparison) -> dict[str, Any]:
    """The numbers of each row and each compared pair for a summary, such as comparison/mha/own/p_holm."""
    numbers: dict[str, Any] = {}
    for result in found.results:
        for name, scores in result.scores.items():
            numbers[f"comparison/{name}/{result.axis}/n"] = len(scores)
            numbers[f"comparison/{name}/{result.axis}/mean"] = result.mean(name)
    for outcome in found.outcomes:
        for axis, finding in outcome.findings.items():
            place = f"comparison/{outcome.against}/{axis}"
            numbers[f"{place}/ci_low"], numbers[f"{place}/ci_high"] = finding.interval.low, finding.interval.high
            numbers[f"{place}/p_holm"] = outcome.holm_p
    return numbers


def tables_of(found: Comparison) -> dict[str, Rows]:
    """The verdicts, and the rows of each axis, by their titles."""
    tables = {"verdicts": verdict_table(found)} if found.outcomes else {}
    return tables | {f"rows at {AXIS_NAMES[result.axis]}": row_table(found, result) for result in found.results}


def markdown(found: Comparison) -> str:
    """The content of the page."""
    tables = [
        part
        for result in found.results
        for part in (f"## Rows at {AXIS_NAMES[result.axis]}", markdown_table(*row_table(found, result)))
    ]
    verdicts = [
        "## Verdicts",
        markdown_table(*verdict_table(found)),
        "A difference is that of the subject minus the row; its sign is turned so that + always favours the subject. "
        "± is the 95 % interval over seeds and test examples together (their variances add); `over seeds` where "
        f"examples are not known. {which_p(found.outcomes)} `p on this test set` is of the exact sign-flip test over "
        "seeds. `could have been found` is the true difference that this test finds in 4 of 5 comparisons with these "
        "seeds, examples and rows.",
    ]
    parts = [
        f"# {found.word.capitalize()}: {found.options.subject} on {found.task}",
        f"> {verdict_sentence(found)}",
        f"![Paired differences]({PICTURE})" if found.outcomes else "",
        f"```bash\n{command_of(found)}\n```",
        *protocol(found),
        *(verdicts if found.outcomes else []),
        *tables,
        *([markdown_table(*way_table(found))] if found.way_scores else []),
        "## Learning rates",
        f"![Validation score over learning rate]({RATES})",
        markdown_table(*rate_table(found)),
        "\n".join(f"- {line}" for line in page_notes(found)),
    ]
    if lost := dict.fromkeys(_list_failures(found)):
        parts += ["## What did not run", "\n".join(lost)]
    return "\n\n".join(filter(None, parts)) + "\n"


def protocol(found: Comparison) -> Iterator[str]:
    """The protocol that was followed, in sentences."""
    options, declared = found.options, found.declaration
    seeds, points = options.reporting_seeds, found.tuning.points
    trials = f"{len(points.points)} {'learning rates' if points.random is None else 'random points'}"
    compared = counted(len(options.others), "comparison")
    yield (
        f"Declared on {declared['time']} (digest {declared['digest']}), before the first run: {compared} "
        f"of {options.subject}, margin {_format_margin(found)}. Every row that learns tried the same "
        f"{trials}, the recipe's own among them, with the seeds {', '.join(map(str, options.tuning_seeds))}, at "
        f"{AXIS_NAMES[options.axes[0]]} and scored on validation; where these disagree, seed {options.deciding_seed} "
        "decides. The best mean wins, and a tie goes to the recipe's own rate. A run that diverged counts as chance; a "
        "row that is not above the constant predictor at any rate is not compared. No trial scored the test set. The "
        f"chosen values were trained with the seeds {seeds.start} to {seeds.stop - 1}"
        f"{', each on a split of its own' if options.splits else ''}. *Better* and *worse* hold on every axis, with "
        "Holm's correction over the compared rows."
    )
    if options.splits:
        yield "The first split alone chose the values; other splits test some of the examples that chose them."
    if any(run.summary.digests.get("test") for run in found.runs):
        seen = len(found.evaluations)
        yield f"The ledger counts {seen} evaluations of this test set by any command so far, this page's included."
    else:
        yield "No run of this page has scored the test set."
    if found.times is not None:
        yield (
            f"Equal time: {found.times.machine}; load {found.times.load:.1f} before. Rows have their own sizes and "
            f"the steps that take as long as the {found.times.steps:,} of {BASE_ROW}, fixed before training, at most "
            "four times and at least a quarter. The budget holds for this machine only."
        )


def which_p(outcomes: Sequence[Outcome]) -> str:
    """Which test gives *p*: with few seeds the larger value of two tests."""
    findings = [finding for outcome in outcomes for finding in outcome.findings.values()]
    if not any(finding.estimate.over_seeds for finding in findings):
        return "*p* is of the same Student's test."
    return (
        f"With fewer than {MIN_CROSSED_SEEDS} seeds *p* is the larger one of the same Student's test and of that over "
        "seeds alone, and *equivalent* needs both; so a difference may be undecided although its interval leaves 0 out."
    )


def _format_margin(found: Comparison) -> str:
    margin = found.margin
    if margin.share is not None:
        return f"{margin.share:.0%} of the other row's {unit_of(found.metric)}"
    return "none" if margin.amount is None else with_unit(margin.amount, found.metric)


def page_notes(found: Comparison) -> list[str]:
    """Remarks that are not in the sentence."""
    notes = [row.contract_note for row in found.rows if row.contract_note]
    notes += [missing] if (missing := missing_rows(found)) else []
    notes += [order] if (order := order_note(found)) else []
    return [*notes, *version_note(found.commits)]


def as_json(found: Comparison) -> dict[str, Any]:
    """All content of the page, for results.json."""
    tuning = found.tuning
    return {
        "sentence": verdict_sentence(found),
        "command": command_of(found),
        "declaration": dict(found.declaration),
        "commits": found.commits,
        "outcomes": [asdict(one) | {"depends_on_split": one.depends_on_split} for one in found.outcomes],
        "axes": {
            result.axis: {
                "scores": result.scores,
                "lost": {name: reasons for name, reasons in result.lost.items() if reasons},
            }
            for result in found.results
        },
        "trials": {name: [asdict(trial) for trial in trials] for name, trials in tuning.trials.items()},
        "chosen": {name: trial and asdict(trial.point) for name, trial in tuning.chosen.items()},
        "learned": dict(tuning.learned),
        "at_edge": dict(tuning.at_edge),
        "ways": {name: dict(ways) for name, ways in found.way_scores.items()},
        "references": found.references,
        "times": found.times and asdict(found.times),
        "refused": dict(found.refused),
        "evaluations_of_this_test_set": len(found.evaluations),
    }


def command_of(found: Comparison) -> str:
    """The command line that repeats a comparison."""
    options = found.options
    return repeat_command(found.word, {"attention": [options.subject], "against": options.others}, options)


def _list_failures(found: Comparison) -> Iterator[str]:
    """A line for each row that could not run and each diverged run."""
    yield from (f"- {name} takes no part: {reason}" for name, reason in found.refused.items())
    for row in found.rows:
        yield from (f"- {row.name} at {AXIS_NAMES[axis]}: {reason}" for axis, reason in row.refused.items())
    for result in found.results:
        for name, lost in result.lost.items():
            yield from (f"- {name} at {AXIS_NAMES[result.axis]}, {reason}" for reason in lost)
