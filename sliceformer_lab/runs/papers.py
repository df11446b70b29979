"""Published results: lookup by cell, the cell that a run repeats, and the comparison of both."""

from __future__ import annotations

import csv
import logging
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from sliceformer_lab.config.compose import option_names, preset_job, written_option
from sliceformer_lab.runs.run_summary import RunProtocol, RunSummary
from sliceformer_lab.runs.score_options import score_options

CELL_KEYS = ("paper", "table", "task", "attention", "variant", "metric")
FULL_SCALE = "full"  # the scale of the published recipe
# options that may differ in a run that repeats a cell; `find_obstacles` reports the differences from the paper
OPTIONS_JUDGED_APART = {
    *("data.split_seed", "data.source", "data.version", "data.val_fraction", "data.limit_train", "data.limit_eval"),
    *("data.pad_to_max_len", "data.bucket", "data.bucket_share"),
}
TRIAL_OPTIONS = ("trainer.fast_dev_run", "trainer.overfit_batches")  # of a trial on a few batches, which is no result
_PERCENTAGES = ("accuracy", "average_precision", "iou")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PublishedCell:
    """The key of one number in a paper's table; `variant` is '' for the plain system."""

    paper: str
    table: str
    task: str
    attention: str
    variant: str
    metric: str

    def __str__(self) -> str:
        return ", ".join(part for part in astuple(self) if part)


@dataclass(frozen=True)
class PublishedResult:
    """A paper's number for a cell."""

    cell: PublishedCell
    printed: str  # the text in the paper

    @property
    def value(self) -> float | None:
        """The number in our units (percentages as fractions); None if the paper prints FAIL or OOM."""
        if not self.printed[-1].isdigit():
            return None
        number = float(self.printed)
        is_percentage = number > 1 and any(word in self.cell.metric for word in _PERCENTAGES)
        return number / 100 if is_percentage else number


@dataclass(frozen=True)
class Protocol:
    """Training and selection behind a published number, as far as the papers describe them."""

    num_train: int | None  # training examples; the papers hold no images out for validation
    epochs: int | None  # either epochs or steps is set
    steps: int | None
    length: int | None  # maximum sequence length in tokens, without CLS and end token
    selection: str  # best_test: the best test score of all epochs
    flaws: tuple[str, ...]  # reasons why no run of ours is comparable


@cache
def protocols() -> dict[str, Protocol]:
    """All protocols in `paper_protocols.csv`, which is part of the package.

    Keys are task, paper/table/task or paper/table/task/attention; the most specific key of a cell wins. For SAMSA they
    are the epochs of the published code; its text says 50 on LRA and 240 on Peptides-struct. Its Tables 2 to 4 repeat
    the best of Table 1.
    """
    found = {}
    for row in _rows_of("paper_protocols.csv"):
        num_train, epochs, steps, length = (
            int(row[name]) if row[name] else None for name in ("num_train", "epochs", "steps", "length")
        )
        flaws = tuple(filter(None, row["flaws"].split("; ")))
        found[row["of"]] = Protocol(num_train, epochs, steps, length, row["selection"], flaws)
    return found


def _rows_of(name: str) -> list[dict[str, str]]:
    """The rows of a table of the package."""
    text = files(__package__).joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@cache
def published_results() -> dict[PublishedCell, PublishedResult]:
    """All results in `paper_results.csv`, which is part of the package."""
    results = {}
    for row in _rows_of("paper_results.csv"):
        cell = PublishedCell(*(row[key] for key in CELL_KEYS))
        results[cell] = PublishedResult(cell, row["value"])
    return results


def find_published(published: Mapping[str, Any]) -> PublishedResult:
    """The published result of the cell with these KEYS; a missing or null key counts as ''.

    Raises ValueError for an unknown key, and for an unknown cell, with the nearest known one.
    """
    if unknown := sorted(set(published) - set(CELL_KEYS)):
        raise ValueError(f"published: no such key {', '.join(unknown)}; a cell has {', '.join(CELL_KEYS)}")
    cell = PublishedCell(*("" if published.get(key) is None else str(published[key]) for key in CELL_KEYS))
    results = published_results()
    if cell not in results:
        by_name = {str(known): known for known in results}
        nearest = get_close_matches(str(cell), list(by_name), n=1, cutoff=0.0)[0]
        raise ValueError(f"published: no paper prints [{cell}]; the nearest cell is [{nearest}]")
    return results[cell]


def recipe_rows(recipe: str) -> dict[str, PublishedCell]:
    """The cells that a recipe of conf/recipe repeats, by the words to add after `recipe=...` in a command.

    Empty for a recipe without published results. Raises ValueError for a cell that no paper prints.
    """
    published = written_option("recipe", recipe).get("published")
    return {words: _cell_of(published, row) for words, row in published["rows"].items()} if published else {}


def _cell_of(published: Mapping[str, Any], row: Sequence[str]) -> PublishedCell:
    """The cell of `row`, [attention] or [attention, variant], in a recipe's `published` node."""
    named = {"attention": row[0], "variant": row[1] if len(row) > 1 else ""}
    return find_published({**{key: value for key, value in published.items() if key != "rows"}, **named}).cell


def repeated_cell(config: Mapping[str, Any]) -> dict[str, str] | None:
    """The published cell that a resolved configuration repeats, as a dict of KEYS; None if there is none.

    `published` of a recipe has `rows`, which map command words to rows of the paper's table. A configuration repeats a
    row if these words give the same `score_options`, apart from OPTIONS_JUDGED_APART. A `published` without rows is
    the cell itself.
    """
    published, names = config["published"], config["names"]
    if not published or "rows" not in published:
        return dict(published) if published else None
    recipe, attention, differing = names["recipe"], f"attention={names['attention']}", []
    if recipe not in option_names("recipe"):
        return None  # a recipe from the user's own folder, which preset_job cannot find
    for words, row in published["rows"].items():
        if attention in words.split():
            repeated = preset_job(f"recipe={recipe}", f"scale={names['scale']}", *words.split())
            differing.append(_differing_keys(config, repeated))
            if not differing[-1]:
                cell = _cell_of(published, row)
                return {key: getattr(cell, key) for key in CELL_KEYS}
    nearest = min(differing, key=len, default=[])
    reason = f"differs from the published setting in {', '.join(nearest)}" if nearest else f"has no row for {attention}"
    log.info(f"this run is not compared with a published number: it {reason} (recipe={recipe})")
    return None


def _differing_keys(config: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The options of model and training that differ between two configurations."""
    ours, theirs = _deciding_options(config), _deciding_options(other)
    return sorted(key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key))


def _deciding_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a configuration that must be those of the cell, by their path."""
    trial = {name: config["trainer"].get(name.partition(".")[2]) for name in TRIAL_OPTIONS}
    return {key: value for key, value in (score_options(config) | trial).items() if key not in OPTIONS_JUDGED_APART}


def compare_published(summary: RunSummary) -> str | None:
    """One line with our score, the published score and the obstacles to comparing them; None without a cell.

    A fact that the run has not recorded counts as different. Raises ValueError if no paper prints the cell.
    """
    if not summary.published:
        return None
    theirs = find_published(summary.published)
    cell = theirs.cell
    ours, published = _format_value(summary.metric(cell.metric)), _format_value(theirs.value, theirs.printed)
    scores = f"{cell.metric}: ours {ours}, published {published}"
    line = f"{scores} ({cell.paper} {cell.table})"
    reasons = find_obstacles(summary, theirs)
    return f"{line}, equal protocol" if not reasons else f"{line}, not comparable: {'; '.join(reasons)}"


def find_obstacles(summary: RunSummary, theirs: PublishedResult) -> list[str]:
    """The reasons why a run's score is not comparable with a published one; empty if it is comparable."""
    cell, run = theirs.cell, summary.protocol
    recipe = _find_protocol(cell)
    scale = summary.scale or FULL_SCALE
    small = [] if scale == FULL_SCALE else [f"scale={scale}: not the paper's data, lengths and steps"]
    if recipe is None:
        return [*small, f"how the papers trained on {cell.task} is not known here"]
    unit, lasted, theirs_lasted = "steps", run.steps, recipe.steps
    if recipe.steps is None:
        unit, lasted, theirs_lasted = "epochs", run.epochs, recipe.epochs
    length, parameters, size = run.sequence_length, summary.parameters, _published_size(cell)
    limits = (run.limit_train, run.limit_val, run.limit_test, run.limit_train_batches, run.limit_val_batches)
    reasons = {
        f"this run's task is {summary.task}": summary.task != cell.task,
        f"the data are {run.data or 'unknown'}, not the official set": run.official is not True,
        f"{run.num_train} training examples, the paper {recipe.num_train}": run.num_train != recipe.num_train,
        "only part of the data was used": any(limit is not None for limit in limits),
        f"the epoch was chosen by {run.selection}, the paper's by {recipe.selection}": run.selection
        != recipe.selection,
        f"{_format_length(run, unit)}, the paper {theirs_lasted}{'' if lasted else f' {unit}'}": lasted
        != theirs_lasted,
        f"sequences of {length} tokens, the paper {recipe.length}": not _same_length(length, recipe.length),
        f"{parameters} parameters, the paper {size} million": size is not None and not _same_size(parameters, size),
    }
    return [*small, *recipe.flaws, *(reason for reason, holds in reasons.items() if holds)]


def _find_protocol(cell: PublishedCell) -> Protocol | None:
    table = f"{cell.paper}/{cell.table}/{cell.task}"
    known = (protocols().get(key) for key in (f"{table}/{cell.attention}", table, cell.task))
    return next((protocol for protocol in known if protocol is not None), None)


def _same_length(length: int | None, published: int | None) -> bool:
    """Whether two lengths are equal, apart from one CLS or end token."""
    return published is None or (length is not None and length - published in (0, 1))


def _format_length(run: RunProtocol, unit: str) -> str:
    """The length of a run, in the paper's unit if the run has it."""
    counts = [f"{count} {name}" for name, count in (("epochs", run.epochs), ("steps", run.steps)) if count is not None]
    return next((count for count in counts if count.endswith(unit)), (*counts, f"an unknown number of {unit}")[0])


def _published_size(cell: PublishedCell) -> float | None:
    row = published_results().get(
        PublishedCell(cell.paper, cell.table, cell.task, cell.attention, cell.variant, "params_millions")
    )
    return None if row is None else row.value


def _same_size(parameters: int | None, millions: float) -> bool:
    """Whether a size is within 2.5 % of the published one.

    The papers round their counts, and some counts belong to another head or patch size than the one they state.
    """
    return parameters is not None and abs(parameters / 1e6 - millions) <= 0.025 * millions


def _format_value(value: float | None, otherwise: str = "unknown") -> str:
    return otherwise if value is None else f"{value:.4f}"
