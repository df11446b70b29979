"""The numbers the papers print, which of them a run repeats, and when the two may be compared."""

from __future__ import annotations

import csv
import logging
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from sliceformer_lab.config.compose import compose_job, option_names, written_option

KEYS = ("paper", "table", "task", "attention", "variant", "metric")
FULL = "full"  # the scale of the published recipe
# a run with other values here still repeats its cell; `obstacles` says what of this differs from the paper
JUDGED_APART = {"root", "file", "download", "verify", "processes", "num_workers", "eval_batch_size", "split_seed"}
JUDGED_APART |= {"source", "version", "val_fraction", "limit_train", "limit_eval", "bucket", "pad_to_max_len"}
NODES = ("task", "data", "encoder", "block", "attention", "optim")  # what a recipe and its attention say
_PERCENTAGES = ("accuracy", "average_precision", "iou")


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Cell:
    """One cell of a paper's table; `variant` is '' for the plain system."""

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
    """What a paper prints in a cell."""

    cell: Cell
    printed: str
    std: float | None  # as printed
    note: str

    @property
    def value(self) -> float | None:
        """The number in our units, percentages as fractions; None where the paper prints FAIL or OOM."""
        if not self.printed[-1].isdigit():
            return None
        number = float(self.printed)
        is_percentage = number > 1 and any(word in self.cell.metric for word in _PERCENTAGES)
        return number / 100 if is_percentage else number


@dataclass(frozen=True)
class Protocol:
    """How the papers got a task's numbers, as far as they say."""

    num_train: int  # examples; of images they hold none out for validation
    epochs: int | None = None  # or steps
    steps: int | None = None
    length: int | None = None  # most tokens of a sequence, CLS and end token not counted
    selection: str = "best_test"  # they score the test set after each epoch and print the best
    max_parameters: int | None = None  # that the benchmark compares at


_UNSTATED = "a rule it does not state"
_LISTOPS = Protocol(num_train=96_000, length=2000, selection="best_val")
_TEXT = Protocol(num_train=25_000, length=1000)  # its test set is its validation set
_RETRIEVAL = Protocol(num_train=147_086, length=4000)
_IMAGE = Protocol(num_train=45_000, length=1024, selection="best_val")
_PATHFINDER = Protocol(num_train=160_000, length=1024, selection="best_val")
_PEPTIDES = Protocol(num_train=10_873, selection=_UNSTATED, max_parameters=500_000)

# the longest key that fits a cell counts: task, paper/table/task or paper/table/task/attention
PROTOCOLS = {
    "mnist": Protocol(epochs=100, num_train=60_000),
    "cifar10": Protocol(epochs=100, num_train=50_000),
    "cifar100": Protocol(epochs=100, num_train=50_000),
    "dogs_vs_cats": Protocol(epochs=300, num_train=20_000),
    "imagenet1k": Protocol(epochs=300, num_train=1_281_167),
    "imdb": Protocol(epochs=30, num_train=40_000, selection=_UNSTATED),
    "sliceformer/table2/lra_listops": replace(_LISTOPS, steps=5000),
    "sliceformer/table2/lra_text": replace(_TEXT, steps=20_000),
    "sliceformer/table2/lra_retrieval": replace(_RETRIEVAL, steps=5000),
    "sliceformer/table2/lra_image": replace(_IMAGE, steps=35_000),
    "sliceformer/table2/lra_image/sliceformer": replace(_IMAGE, steps=46_800),
    "sliceformer/table2/lra_pathfinder": replace(_PATHFINDER, steps=62_400),
    "sliceformer/table2/lra_pathfinder/sliceformer": replace(_PATHFINDER, steps=50_000),
    "csp/table4a/lra_listops": replace(_LISTOPS, steps=5000),
    "csp/table4a/lra_text": replace(_TEXT, steps=20_000),
    "csp/table4a/lra_retrieval": replace(_RETRIEVAL, steps=5000),
    "csp/table4a/lra_image": replace(_IMAGE, steps=35_156),
    "csp/table4a/lra_pathfinder": replace(_PATHFINDER, steps=125_000),
    "csp/table4b/lra_listops": replace(_LISTOPS, steps=90_000),
    "csp/table4b/lra_text": replace(_TEXT, steps=25_000, length=4000),
    "csp/table4b/lra_retrieval": replace(_RETRIEVAL, steps=91_960, selection="best_val"),
    "csp/table4b/lra_image": replace(_IMAGE, steps=180_000),
    "csp/table4b/lra_pathfinder": replace(_PATHFINDER, steps=250_000),
    "csp/table4b/lra_pathx": replace(_PATHFINDER, steps=125_000, length=16_384),
    "samsa/table1/lra_listops": replace(_LISTOPS, epochs=50, length=2048, selection=_UNSTATED),
    "samsa/table1/lra_text": replace(_TEXT, epochs=50, length=1024, selection=_UNSTATED),
    "samsa/table1/lra_retrieval": replace(_RETRIEVAL, epochs=50, length=4096, selection=_UNSTATED),
    "samsa/table1/lra_image": replace(_IMAGE, epochs=50, selection=_UNSTATED),
    "samsa/table1/lra_pathfinder": replace(_PATHFINDER, epochs=50, selection=_UNSTATED),
    "samsa/table1/peptides_func": replace(_PEPTIDES, epochs=160),
    "samsa/table1/peptides_struct": replace(_PEPTIDES, epochs=240),
}
PROTOCOLS |= {  # the best of Table 1
    f"{key.replace('table1', 'table3' if 'peptides' in key else 'table2')}/samsa": recipe
    for key, recipe in PROTOCOLS.items()
    if key.startswith("samsa/table1/")
}


@cache
def published_results() -> dict[Cell, PublishedResult]:
    """Every cell of `paper_results.csv`, which ships with the package."""
    text = files(__package__).joinpath("paper_results.csv").read_text(encoding="utf-8")
    results = {}
    for row in csv.DictReader(text.splitlines()):
        cell = Cell(*(row[key] for key in KEYS))
        std = float(row["std"]) if row["std"] else None
        results[cell] = PublishedResult(cell, row["value"], std, row["note"])
    return results


def find(published: Mapping[str, Any]) -> PublishedResult:
    """The cell that paper, table, task, attention, variant and metric name; a missing or null variant is ''.

    Raises ValueError, naming the nearest cell, if there is none.
    """
    if unknown := sorted(set(published) - set(KEYS)):
        raise ValueError(f"published: no such key {', '.join(unknown)}; a cell has {', '.join(KEYS)}")
    cell = Cell(*("" if published.get(key) is None else str(published[key]) for key in KEYS))
    results = published_results()
    if cell not in results:
        by_name = {str(known): known for known in results}
        nearest = get_close_matches(str(cell), list(by_name), n=1, cutoff=0.0)[0]
        raise ValueError(f"published: no paper prints [{cell}]; the nearest cell is [{nearest}]")
    return results[cell]


def recipe_rows(recipe: str) -> dict[str, Cell]:
    """What a recipe of conf/recipe repeats: the words that follow `recipe=...` in a command, and the printed cell.

    Empty for a recipe that repeats none. Raises ValueError for a cell that no paper prints.
    """
    published = written_option("recipe", recipe).get("published")
    return {words: _cell_of(published, row) for words, row in published["rows"].items()} if published else {}


def _cell_of(published: Mapping[str, Any], row: Sequence[str]) -> Cell:
    """The cell of a row, [attention] or [attention, variant], in the `published` node of a recipe."""
    named = {"attention": row[0], "variant": row[1] if len(row) > 1 else ""}
    return find({**{key: value for key, value in published.items() if key != "rows"}, **named}).cell


def repeated_cell(config: Mapping[str, Any]) -> dict[str, str] | None:
    """The printed cell that a resolved configuration repeats, by its KEYS; None if it repeats none.

    A recipe's `published` has `rows`: the words of a command, and the row of the paper's table. The configuration
    repeats a row if it is the one that this command gives, but for seeds, machines, and what `obstacles` judges.
    A `published` without rows already names a cell.
    """
    published, names = config["published"], config["names"]
    if not published or "rows" not in published:
        return dict(published) if published else None
    recipe, attention, differing = names["recipe"], f"attention={names['attention']}", []
    if recipe not in option_names("recipe"):
        return None  # of the user's own folder, which a command composed here does not see
    for words, row in published["rows"].items():
        if attention in words.split():
            repeated = compose_job([f"recipe={recipe}", f"scale={names['scale']}", *words.split()])
            differing.append(_differing_keys(config, repeated))
            if not differing[-1]:
                cell = _cell_of(published, row)
                return {key: getattr(cell, key) for key in KEYS}
    nearest = min(differing, key=len, default=[])
    reason = f"differs from the published setting in {', '.join(nearest)}" if nearest else f"has no row for {attention}"
    log.info(f"no published number is set beside this run: it {reason} (recipe={recipe})")
    return None


def _differing_keys(config: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The options in which two configurations train other models or train them otherwise."""
    return [
        f"{node}.{key}"
        for node in NODES
        for key in sorted({*config[node], *other[node]})
        if config[node].get(key) != other[node].get(key) and not (node == "data" and key in JUDGED_APART)
    ]


def compare(summary: Mapping[str, Any]) -> str | None:
    """One line with our figure beside the published one and whether they may be compared; None without a cell.

    Reads `published`, `metrics`, `protocol` and `parameters` of a run's summary; what it does not find there counts as
    not equal. Raises ValueError if no paper prints the cell.
    """
    if not summary.get("published"):
        return None
    theirs = find(summary["published"])
    cell = theirs.cell
    metrics = dict(summary.get("metrics") or {})
    ours = metrics.get(
        cell.metric, metrics.get(f"{cell.metric}_best_test_epoch")
    )  # the name that selection=best_test gives
    figures = f"{cell.metric}: ours {_shown(ours)}, published {_shown(theirs.value, theirs.printed)}"
    line = f"{figures} ({cell.paper} {cell.table})"
    reasons = obstacles(summary, theirs)
    return f"{line}, equal protocol" if not reasons else f"{line}, not comparable: {'; '.join(reasons)}"


def obstacles(summary: Mapping[str, Any], theirs: PublishedResult) -> list[str]:
    """Why a run's figure may not stand beside a published one; empty if it may."""
    cell, run = theirs.cell, dict(summary.get("protocol") or {})
    recipe = _protocol(cell)
    scale = summary.get("scale") or FULL
    small = [] if scale == FULL else [f"scale={scale}: not the paper's data, lengths and steps"]
    if recipe is None:
        return [*small, f"how the papers trained on {cell.task} is not known here"]
    unit = "epochs" if recipe.steps is None else "steps"
    lasted, theirs_lasted, length = run.get(unit), getattr(recipe, unit), run.get("sequence_length")
    chosen, task, trained_on = run.get("selection"), summary.get("task"), run.get("num_train")
    parameters, size = summary.get("parameters"), _published_size(cell)
    reasons = {
        f"this run's task is {task}": task != cell.task,
        f"the data are {run.get('data', 'unknown')}, not the official set": run.get("official") is not True,
        f"{trained_on} training examples, the paper {recipe.num_train}": trained_on != recipe.num_train,
        "only part of the data was used": any(
            run.get(f"limit_{part}") is not None for part in ("train", "val", "test")
        ),
        f"the epoch was chosen by {chosen}, the paper's by {recipe.selection}": chosen != recipe.selection,
        f"{_length(run, unit)}, the paper {theirs_lasted}{'' if lasted else f' {unit}'}": lasted != theirs_lasted,
        f"sequences of {length} tokens, the paper {recipe.length}": not _same_length(length, recipe.length),
        f"{parameters} parameters, the benchmark allows {recipe.max_parameters}": not _within(
            parameters, recipe.max_parameters
        ),
        f"{parameters} parameters, the paper {size} million": size is not None and not _same_size(parameters, size),
    }
    return [*small, *(reason for reason, holds in reasons.items() if holds)]


def _protocol(cell: Cell) -> Protocol | None:
    table = f"{cell.paper}/{cell.table}/{cell.task}"
    return next((PROTOCOLS[key] for key in (f"{table}/{cell.attention}", table, cell.task) if key in PROTOCOLS), None)


def _same_length(length: int | None, published: int | None) -> bool:
    """Equal but for a CLS or an end token."""
    return published is None or (length is not None and length - published in (0, 1))


def _length(run: Mapping[str, Any], unit: str) -> str:
    """How long a run was, in the paper's unit if it was counted in that."""
    counted = [name for name in (unit, "epochs", "steps") if run.get(name) is not None]
    return f"{run[counted[0]]} {counted[0]}" if counted else f"an unknown number of {unit}"


def _within(parameters: int | None, limit: int | None) -> bool:
    return limit is None or (parameters is not None and parameters <= limit)


def _published_size(cell: Cell) -> float | None:
    row = published_results().get(
        Cell(cell.paper, cell.table, cell.task, cell.attention, cell.variant, "params_millions")
    )
    return None if row is None else row.value


def _same_size(parameters: int | None, millions: float) -> bool:
    """Within 2.5 %: the papers round, and some of their counts hold for another head or patch than they state."""
    return parameters is not None and abs(parameters / 1e6 - millions) <= 0.025 * millions


def _shown(value: float | None, otherwise: str = "unknown") -> str:
    return otherwise if value is None else f"{value:.4f}"
