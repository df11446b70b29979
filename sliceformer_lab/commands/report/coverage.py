"""For each published number: the command that repeats it, or why there is none, and its runs in a folder."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sliceformer_lab.config.compose import option_names
from sliceformer_lab.runs.collect import RunRecord
from sliceformer_lab.runs.papers import (
    Cell,
    PublishedResult,
    find,
    obstacles,
    published_results,
    recipe_rows,
)

SPEED_SUITES = {"sliceformer": "lra_speed", "samsa": "samsa_speed"}  # paper -> suite of the benchmark
QUOTED_FROM = {("samsa", "table2"): "sliceformer"}  # tables with numbers quoted from another paper


@dataclass(frozen=True)
class Coverage:
    """A published number, its command and its runs."""

    result: PublishedResult
    command: str  # '' if there is none
    reason: str  # why there is no command; '' if there is one
    status: str  # how the runs in the folder ended

    @property
    def has_run(self) -> bool:
        """Whether the folder holds a run of it, whatever its status."""
        return self.status != "not run"


@dataclass(frozen=True)
class Here:
    """The commands, tasks and attentions of this package, and the benchmarks in a folder."""

    commands: Mapping[Cell, list[str]]  # printed system -> arguments of the commands that repeat it
    tasks: set[str]
    attentions: set[str]
    measured: Mapping[tuple[str, str, int], str]  # (suite, attention, tokens) -> benchmark folder


def coverage(runs: Iterable[RunRecord], folder: Path) -> list[Coverage]:
    """A line for each published number, in the order of the papers' tables."""
    here = Here(commands_by_system(), set(option_names("task")), set(option_names("attention")), _measured(folder))
    by_system: dict[Cell, list[RunRecord]] = defaultdict(list)
    for run in runs:
        if (named := _named(run)) is not None:
            by_system[system(named)].append(run)
    return [_covered(result, here, by_system) for result in published_results().values()]


def system(cell: Cell) -> Cell:
    """The cell without its metric, which identifies a row of a printed table."""
    return replace(cell, metric="")


def commands_by_system() -> dict[Cell, list[str]]:
    """Printed system -> arguments of the commands that repeat it, from all recipes."""
    found: dict[Cell, list[str]] = defaultdict(list)
    for recipe in option_names("recipe"):
        for words, cell in recipe_rows(recipe).items():
            found[system(cell)].append(f"recipe={recipe} {words}")
    return found


def _covered(result: PublishedResult, here: Here, runs: Mapping[Cell, list[RunRecord]]) -> Coverage:
    cell = result.cell
    if cell.task.startswith("speed_"):
        suite, tokens = SPEED_SUITES[cell.paper], int(cell.task.rpartition("_")[2])
        known = cell.attention in here.attentions
        command = f"python -m sliceformer_lab benchmark suite={suite} attentions=[{cell.attention}] sizes=[{tokens}]"
        place = here.measured.get((suite, cell.attention, tokens))
        return Coverage(
            result,
            command if known else "",
            "" if known else f"there is no attention {cell.attention} here",
            f"measured in {place}, on a machine other than the paper's" if place else "not run",
        )
    origin = replace(cell, paper=QUOTED_FROM.get((cell.paper, cell.table), cell.paper))
    commands = here.commands.get(system(cell)) or here.commands.get(system(origin)) or []
    return Coverage(
        result,
        " or ".join(f"python -m sliceformer_lab {words}" for words in commands),
        "" if commands else _reason(result, here),
        _status(result, runs.get(system(cell)) or runs.get(system(origin)) or []),
    )


def _reason(result: PublishedResult, here: Here) -> str:
    """Why no recipe repeats a cell."""
    cell = result.cell
    if result.value is None:
        return f"the paper prints {result.printed}"
    if cell.task not in here.tasks:
        return f"there is no task {cell.task} here"
    if cell.attention not in here.attentions:
        return f"this package does not have the system {cell.attention}"
    return "no recipe repeats it yet"


def _status(result: PublishedResult, runs: Iterable[RunRecord]) -> str:
    """The statuses and results of the runs of a cell, and whether their protocol is the paper's."""
    words = []
    for run in runs:
        if run.status != "ok":
            words.append(run.status)
            continue
        reasons = obstacles(run.summary, result)
        value = _result(run, result.cell.metric)
        shown = "ok, not measured" if value is None else f"{value:.4f}"
        words.append(f"{shown} (not comparable: {'; '.join(reasons)})" if reasons else f"{shown} (equal protocol)")
    counted = {word: words.count(word) for word in dict.fromkeys(words)}
    return "; ".join(word if count == 1 else f"{count} x {word}" for word, count in counted.items()) or "not run"


def _result(run: RunRecord, metric: str) -> float | None:
    if metric == "params_millions":
        parameters = run.number("parameters")
        return None if parameters is None else parameters / 1e6
    return run.metric(metric)


def _named(run: RunRecord) -> Cell | None:
    """The published cell that a run names, if a paper prints it."""
    try:
        return find(run.summary["published"]).cell if run.summary.get("published") else None
    except (ValueError, TypeError, AttributeError):
        return None


def _measured(folder: Path) -> dict[tuple[str, str, int], str]:
    """(suite, attention, tokens) -> benchmark folder with that measurement."""
    found: dict[tuple[str, str, int], str] = {}
    for file in sorted(folder.rglob("benchmark/*/*/results.json")):
        try:
            rows: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["rows"]
            done = [(row["suite"], row["method"], int(row["tokens"])) for row in rows if row["status"] == "ok"]
        except (OSError, ValueError, KeyError, TypeError):
            continue  # of another version, or half written
        found |= dict.fromkeys(done, file.parent.relative_to(folder).as_posix())
    return found
