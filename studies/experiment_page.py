"""The verdicts of declared experiments: tables and sentences between the markers of their README, from committed lines.

An experiment with missing runs gets its count and its tuning, and no verdict. The decisions are those of `audit`: rows
that have not learned are not compared, p and interval are from the crossed table of seeds and test examples, and Holm's
correction counts the compared rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from marked_sections import with_section
from matplotlib.axes import Axes
from run_experiment import Experiment, Job, read_experiments, unpacked

from sliceformer_lab.commands.compare.sentences import (
    VERBS,
    format_p,
    format_size,
    in_unit,
    list_names,
    phrase_of_p,
    phrase_of_smallest,
    with_unit,
)
from sliceformer_lab.commands.compare.verdicts import Outcome, Pairs, judge_rows
from sliceformer_lab.errors import DataError
from sliceformer_lab.measures.drawing import COLOURS, INK, Chart, save_chart
from sliceformer_lab.measures.metric_scale import factor_of, format_estimate
from sliceformer_lab.measures.statistics import LEVEL, Estimate, estimate_crossed
from sliceformer_lab.runs.plain_text import markdown_table

STUDIES = Path(__file__).resolve().parent
FOLDERS = ("sets", "qm9_gap", "ability", "imdb", "fashion_mnist", "no_skip")
VERDICT, README = "sets", STUDIES.parent / "README.md"
DRAWN = ("sets", "fashion_mnist")
AXIS = "test"  # rows are compared as they stand, on one axis


@dataclass(frozen=True)
class Results:
    """The lines of an experiment and what follows from them."""

    experiment: Experiment
    lines: list[dict[str, Any]]
    references: Sequence[Mapping[str, Any]]  # models without a network: name, test, test_right

    @cached_property
    def missing(self) -> tuple[int, int]:
        """Tuning and reporting runs without a line; all reporting runs while a tuning run is missing."""
        tuning, reporting = self.experiment.missing(self.lines)
        return len(tuning), len(self.experiment.rows) * len(self.experiment.seeds) if tuning else len(reporting)

    def has_learned(self, row: str) -> bool:
        """Whether some rate is above the constant on validation, by a one-sided interval corrected for the rates.

        The variances over seeds and over examples are added, which is never less than the crossed one. One tuning seed
        has that over examples alone.
        """
        one = self.experiment
        for rate, scores in one.tuning_scores(row, self.lines).items():
            spreads = [_spread(line) for line in self.lines if (line["row"], line["rate"]) == (row, rate)]
            count = len(scores)
            over_seeds = float(np.var(scores, ddof=1)) / count if count > 1 else 0.0
            over_examples = np.mean(spreads) ** 2 / one.num_val
            variance = float(over_seeds + over_examples)
            parts = over_seeds**2 / max(1, count - 1) + over_examples**2 / (one.num_val - 1)
            df = variance**2 / float(parts) if parts else 1.0
            above = Estimate(one.sign * (float(np.mean(scores)) - one.constant), variance, df, "seeds and examples")
            if above.lower_limit(LEVEL / len(one.rates)) > 0:
                return True
        return False

    def scores(self, row: str) -> dict[int, np.ndarray]:
        """The scores (E,) of the test examples by seed, at the chosen rate."""
        one = self.experiment
        rate = one.chosen_rate(row, self.lines)
        kept = [line for line in self.lines if (line["stage"], line["row"], line["rate"]) == ("report", row, rate)]
        return {line["seed"]: unpacked(line, one.num_test) for line in kept}

    def pairs(self, row: str) -> Pairs:
        """The differences of the subject and a row; positive in favour of the subject."""
        one = self.experiment
        ours, theirs = self.scores(one.subject), self.scores(row)
        table = one.sign * np.stack([ours[seed] - theirs[seed] for seed in one.seeds])
        means = dict(zip(one.seeds, table.mean(axis=1).tolist(), strict=True))
        return Pairs(means, estimate_crossed(table), one.margin)

    @cached_property
    def learned(self) -> dict[str, bool]:
        """Whether each row has learned."""
        return {row: self.has_learned(row) for row in self.experiment.rows}

    @cached_property
    def outcomes(self) -> dict[str, Outcome]:
        """The outcome of each row that is compared with the subject."""
        one = self.experiment
        rates = {row: one.chosen_rate(row, self.lines) for row in one.rows}
        at_edge = [row for row, rate in rates.items() if rate in (min(one.rates), max(one.rates))]
        compared = [row for row in one.rows if row != one.subject and self.learned[row] and self.learned[one.subject]]
        family = {row: {AXIS: self.pairs(row)} for row in compared}
        return {found.against: found for found in judge_rows(family, one.subject in at_edge, at_edge)}


def read_results(folder: Path) -> list[Results]:
    """The experiments of a folder with their lines and references. Raises DataError for references on other data."""
    files = sorted(folder.glob("*_reference.json"))
    references = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    found = [Results(one, one.lines(), references) for one in read_experiments(folder)]
    for file, reference in zip(files, references, strict=True):
        if any(reference.get("digests") != results.lines[0]["digests"] for results in found if results.lines):
            raise DataError(f"{file}: learned from other data than the runs beside it; write it again from their data")
    return found


def section(results: Results) -> str:
    """What the README says of an experiment: its count and tuning, or its table and verdict."""
    tuning, reporting = results.missing
    if tuning or reporting:
        one = results.experiment
        total = len(one.rows) * len(one.rates) * len(one.tuning_seeds), len(one.rows) * len(one.seeds)
        count = f"{tuning} of {total[0]} tuning runs and {reporting} of {total[1]} reporting runs are missing"
        return f"**No verdict yet: {count}.**\n\n{tuning_table(results)}"
    return f"> {sentence(results)}\n\n{table(results)}\n\n{tuning_table(results)}"


def tuning_table(results: Results) -> str:
    """The validation scores of each rate, a score a tuning seed."""
    one = results.experiment
    found = {Job.of(line): line for line in results.lines}
    rows = []
    for row in one.rows:
        jobs = [[Job("tune", row, rate, seed) for seed in one.tuning_seeds] for rate in one.rates]
        cells = [", ".join(_score(found[job], one) for job in each if job in found) or "–" for each in jobs]
        chosen = one.chosen_rate(row, results.lines)
        rows.append([f"`{row}`", *cells, "–" if chosen is None else format_rate(chosen, one.rates)])
    return markdown_table(["on validation, rate", *(f"{rate:g}" for rate in one.rates), "chosen"], *rows)


def format_rate(rate: float, rates: Sequence[float]) -> str:
    """A chosen rate; one at the edge says so, because a rate beyond it may be better, also where nothing is decided."""
    edges = {max(rates): ", the largest", min(rates): ", the smallest"}
    return f"{rate:g}{edges.get(rate, '')}"


def _score(line: Mapping[str, Any], experiment: Experiment) -> str:
    return "diverged" if line.get("diverged") else in_unit(line["val"], experiment.metric)


def table(results: Results) -> str:
    """Test scores of all rows, the subject less each, p and verdict, and the references."""
    one = results.experiment
    metric, rows = one.metric, []
    for row in one.rows:
        own = estimate_crossed(np.stack([*results.scores(row).values()]))
        score = format_estimate(own.mean, own.interval().half_width, factor_of(metric))
        cells = ["", "", "did not learn" if not results.learned[row] else ""]
        if row in results.outcomes:
            outcome = results.outcomes[row]
            cells = [_difference(outcome, one), format_p(outcome.holm_p), str(outcome.verdict)]
        parameters = next(line["parameters"] for line in results.lines if line["row"] == row)
        rows.append([f"`{row}`", score, *cells, f"{parameters:,}"])
    for name, reached in reference_scores(results).items():
        rows.append([f"{name}, without a network", in_unit(reached, metric), "", "", "", ""])
    less = f"`{one.subject}` minus this row"
    return markdown_table(["", metric.replace("val/", "test "), less, "Holm p", "verdict", "parameters"], *rows)


def reference_scores(results: Results) -> dict[str, float]:
    """Test scores of models without a network: the experiment's own, and those that its runs fitted."""
    name = results.experiment.metric.replace("val/", "test/")
    found = {one["name"]: one["test"] for one in results.references}
    of_one_run: list[dict[str, Any]] = next((one["references"] for one in results.lines if one.get("references")), [])
    return found | {row["name"]: row["metrics"][name] for row in of_one_run if name in (row.get("metrics") or {})}


def sentence(results: Results) -> str:
    """The verdict: what is decided, what is not, and what no row reaches."""
    one = results.experiment
    if not results.learned[one.subject]:
        return f"{one.subject} did not learn at any of {len(one.rates)} rates: no comparison of operators."
    parts = [*_verdicts(results)]
    if unlearned := [row for row in one.rows if not results.learned[row]]:
        parts.append(f"{list_names(unlearned)} did not learn at any of {len(one.rates)} rates: not compared")
    parts += _of_references(results)
    return "; ".join(parts) + "."


def _verdicts(results: Results) -> Iterator[str]:
    one = results.experiment
    for verdict, verb in VERBS.items():
        decided = [found for found in results.outcomes.values() if found.verdict == verdict]
        if decided:
            yield f"{one.subject} {verb} {list_names([describe_decided(found, one) for found in decided])}"
    if undecided := [found for found in results.outcomes.values() if found.verdict == "undecided"]:
        listed = list_names([describe_undecided(found, one) for found in undecided])
        yield f"{one.subject} is not shown to differ from {listed}"
    if withheld := [found for found in results.outcomes.values() if found.verdict == "withheld"]:
        listed = list_names([f"{found.against} ({_difference(found, one)})" for found in withheld])
        yield f"no verdict on {listed}, because a best learning rate is the smallest or largest tried"


def describe_decided(found: Outcome, one: Experiment) -> str:
    finding, metric = found.findings[AXIS], one.metric
    if found.verdict == "equivalent":
        return f"{found.against} within {with_unit(finding.margin, metric)} ({_difference(found, one)})"
    return f"{found.against} by {format_size(finding, metric)} (Holm {phrase_of_p(found.holm_p)})"


def describe_undecided(found: Outcome, one: Experiment) -> str:
    return f"{found.against} ({_difference(found, one)}; {phrase_of_smallest(found.findings[AXIS], one.metric)})"


def _difference(found: Outcome, one: Experiment) -> str:
    """The subject less a row, as the two scores say it; the estimate is positive in favour of the subject."""
    estimate = found.findings[AXIS].estimate
    return _less(one.sign * estimate.mean, estimate, one.metric)


def _less(mean: float, estimate: Estimate, metric: str) -> str:
    """A difference with its sign and half of its interval."""
    return format_estimate(mean, estimate.interval().half_width, factor_of(metric), signed=True)


def _of_references(results: Results) -> Iterator[str]:
    """The best row less each reference whose single scores are known; a mean alone supports no interval.

    Test scores choose the row, so the difference is too good by a little.
    """
    one = results.experiment
    means = {row: float(np.mean([*results.scores(row).values()])) for row in one.rows}
    best = max(means, key=lambda row: one.sign * means[row])
    for reference in results.references:
        scores = np.stack([*results.scores(best).values()]) - unpacked(reference, one.num_test)
        less = estimate_crossed(scores)
        difference = _less(less.mean, less, one.metric)
        pair = f"{best}, the best row on the test set, minus {reference['name']}"
        yield f"{pair}: {difference} (slightly optimistic, because test scores chose the row)"


def _spread(line: Mapping[str, Any]) -> float:
    """The standard deviation of the scores of single validation examples; early lines have only their accuracy."""
    spread: float = line["val_std"] if "val_std" in line else (line["val"] * (1 - line["val"])) ** 0.5
    return spread


def page(folder: Path) -> str:
    """The README of an experiment with its sections between their markers."""
    text = (folder / "README.md").read_text(encoding="utf-8")
    for results in read_results(folder):
        text = with_section(text, results.experiment.results.stem, section(results))
    return text


def draw(results: Results, file: Path) -> None:
    """The subject less each compared row, with its interval; dotted lines are the margin."""
    one = results.experiment
    scale = one.sign * (1.0 if one.metric.endswith("mae") else 100.0)
    rows = list(results.outcomes)

    def draw_rows(axes: Axes) -> None:
        for place, outcome in enumerate(results.outcomes.values()):
            mean, ends = outcome.findings[AXIS].estimate.mean, outcome.findings[AXIS].interval
            axes.plot([scale * ends.low, scale * ends.high], [place, place], color=COLOURS[0], linewidth=2)
            axes.plot(scale * mean, place, "o", color=COLOURS[0])
        axes.axvline(0, color=INK, linewidth=0.8)
        for edge in (-one.margin, one.margin):
            axes.axvline(scale * edge, color="0.6", linewidth=0.8, linestyle=":")
        axes.set_yticks(range(len(rows)), rows)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        points = "" if abs(scale) == 1.0 else " in points"
        axes.set_xlabel(f"{one.subject} minus this row{points}: {one.metric.replace('val/', 'test ')}")

    save_chart(Chart(panels=[draw_rows], size=(6.4, 0.8 + 0.36 * len(rows))), file)


def verdict() -> str:
    """The table of the experiment that the README of the project shows."""
    return table(read_results(STUDIES / VERDICT)[0])


def readme() -> str:
    """The README of the project with that table between its markers."""
    return with_section(README.read_text(encoding="utf-8"), VERDICT, verdict())


def pages() -> tuple[tuple[Path, Callable[[], str]], ...]:
    """The page of each experiment and the README of the project: file and text."""
    own = [(STUDIES / name / "README.md", partial(page, STUDIES / name)) for name in FOLDERS]
    return (*own, (README, readme))


def draw_all() -> None:
    """Write the figures of DRAWN."""
    for name in DRAWN:
        draw(read_results(STUDIES / name)[0], STUDIES / "figures" / f"{name}.png")
