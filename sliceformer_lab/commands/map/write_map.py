"""Writes the report of a map, picture, Markdown and JSON lines, and prints its table and sentences."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from sliceformer_lab.commands.compare.command_words import repeat_command
from sliceformer_lab.commands.compare.compare_tables import Rows, print_tables
from sliceformer_lab.commands.compare.sentences import list_names
from sliceformer_lab.commands.map.cells import SOLVED
from sliceformer_lab.commands.map.draw_map import BAG, CHANCE, draw_map, format_score, steps_shown
from sliceformer_lab.commands.map.map_options import MapOptions
from sliceformer_lab.commands.map.map_results import Map, Result
from sliceformer_lab.runs.files import write_text
from sliceformer_lab.runs.plain_text import markdown_table

PICTURE = "map.png"
MARGIN = 0.02  # a score this near to a floor counts as that floor


def write_map(found: Map, folder: Path) -> None:
    """Write map.png, map.md and map.jsonl into `folder`, and print the table and the sentences."""
    folder.mkdir(parents=True, exist_ok=True)
    draw_map(found, folder / PICTURE)
    lines = [json.dumps(as_json(result), allow_nan=False) for result in found.results.values()]
    write_text(folder / "map.jsonl", "\n".join(lines) + "\n")
    write_text(folder / "map.md", markdown(found))
    tables = {"Test accuracy (steps to .99)": score_table(found)}
    print_tables(tables, [*sentences(found), str(folder / "map.md")])


def as_json(result: Result) -> dict[str, object]:
    """A cell as one line of map.jsonl."""
    floors = result.floors
    return {
        "attention": result.cell.attention,
        "probe": result.cell.probe,
        "reason": result.reason,
        "rate": result.rate,
        "score": result.mean,
        "steps": result.steps,
        "chance": floors.chance if floors else None,
        "bag_level": floors.bag_level if floors else None,
        "tuning": [asdict(run) for run in result.tuning],
        "reporting": [asdict(run) for run in result.reporting],
    }


def markdown(found: Map) -> str:
    """The content of map.md."""
    options = found.options
    reasons = [f"- `{r.cell.attention}` on {r.cell.probe}: {r.reason}" for r in found.results.values() if r.reason]
    failed = [
        f"- `{r.cell.attention}` on {r.cell.probe}, lr {run.rate:g}, seed {run.seed}: {run.status}, {run.error}"
        for r in found.results.values()
        for run in (*r.tuning, *r.reporting)
        if run.status != "ok"
    ]
    lines = [
        "# Capability map",
        "",
        "```bash",
        repeat_command("map", {"attention": options.attentions, "probe": options.probes}, options),
        "```",
        "",
        f"![Attentions by probes]({PICTURE})",
        "",
        markdown_table(*score_table(found)),
        "",
        *protocol(options),
        "",
        *(f"- {line}" for line in sentences(found)),
        "",
        "## Runs",
        "",
        markdown_table(*run_table(found)),
        *(["", "## Empty cells", "", *reasons] if reasons else []),
        *(["", "## Failed runs", "", *failed] if failed else []),
    ]
    return "\n".join(lines) + "\n"


def protocol(options: MapOptions) -> list[str]:
    """What was done, as sentences."""
    first, *others = options.reporting_seeds
    seeds = f"seeds {first} to {others[-1]}" if others else f"seed {first}"
    rates = (
        f"rates {', '.join(f'{rate:g}' for rate in options.rates)} are"
        if options.rates[1:]
        else f"rate {options.rates[0]:g} is"
    )
    edge = f" {options.edge_rate:g} follows if {max(options.rates):g} was the best." if options.edge_rate else ""
    spread = "One seed shows no spread. " if options.seeds == 1 else "Brackets: lowest and highest seed. "
    return [
        f"The learning {rates} tried in this order with the seeds {options.seed} and {options.seed + 1}, scored on "
        f"validation, until their mean reaches {SOLVED:g}.{edge} Where the seeds disagree, seed "
        f"{options.deciding_seed} decides. A run that diverged counts as chance. The best one is trained again with "
        f"{seeds} and scored on the test set once. All cells follow this rule; one "
        "that is solved early has fewer trials, and its steps are those of the first rate that solves it, not of the "
        "fastest.",
        f"{spread}Scores within the budget of steps of each probe, not at convergence. Runs that reach {SOLVED:g} "
        "stop there, so scores above it are not comparable. The rows have the order of the command. No mean over "
        "probes is taken: this is a profile, not a ranking. All rows have one width, so their parameters differ "
        "(below); budget=params:mha makes them equal where it can.",
    ]


def score_table(found: Map) -> Rows:
    """A head, a row for each attention, and the two floors."""
    options = found.options
    rows = [
        [attention, *(_score(found.results[attention, probe]) for probe in options.probes)]
        for attention in options.attentions
    ]
    floors = [found.floors.get(probe) for probe in options.probes]
    bag = [BAG, *(format_score(one.bag_level if one else None) for one in floors)]
    chance = [CHANCE, *(format_score(one.chance if one else None) for one in floors)]
    return [["", *options.probes], *rows, bag, chance]


def _score(result: Result) -> str:
    if result.mean is None:
        known = [run.value for run in result.tuning if run.value is not None]
        return "cannot run" if result.reason else f"validation {format_score(max(known))} so far" if known else ""
    spread = (
        f" [{format_score(min(result.scores))}, {format_score(max(result.scores))}]" if len(result.scores) > 1 else ""
    )
    left = result.cell.options.seeds - len(result.scores)
    missing = f" ({len(result.scores)} of {result.cell.options.seeds} seeds)" if left else ""
    steps = f" ({steps_shown(result)})" if steps_shown(result) else ""
    return f"{format_score(result.mean)}{spread}{steps}{missing}"


def run_table(found: Map) -> Rows:
    """A head, and for each cell with runs its parameters, the validation score of each learning rate and the time."""
    rows = []
    for result in found.results.values():
        if not result.tuning:
            continue
        trials = ", ".join(f"{run.rate:g} (seed {run.seed}): {format_score(run.value)}" for run in result.tuning)
        runs = [*result.tuning, *result.reporting]
        seconds = sum(run.seconds or 0.0 for run in runs)
        rate = "" if result.rate is None else f"{result.rate:g}{', at the edge' if result.at_edge else ''}"
        size = "" if result.parameters is None else f"{result.parameters:,}"
        rows.append([result.cell.probe, result.cell.attention, size, trials, rate, str(len(runs)), f"{seconds:.0f}"])
    head = ["probe", "attention", "parameters", "validation by learning rate", "chosen", "runs", "processor seconds"]
    return [head, *rows]


def sentences(found: Map) -> list[str]:
    """One sentence for each attention: what it solves, does in part, and does not do."""
    return [
        _sentence(attention, [found.results[attention, probe] for probe in found.options.probes])
        for attention in found.options.attentions
    ]


def _sentence(attention: str, results: Sequence[Result]) -> str:
    groups: dict[str, list[str]] = {}
    for result in results:
        if result.mean is None or result.floors is None:
            groups.setdefault("cannot run" if result.reason else "has no result on", []).append(result.cell.probe)
            continue
        verb, detail = _verdict(result, result.mean)
        groups.setdefault(verb, []).append(f"{result.cell.probe} ({detail})")
    verbs = ("solves", "solves in part", "is not above the bag level on", "is at chance on")
    parts = [
        f"{verb} {list_names(groups[verb])}" for verb in (*verbs, "cannot run", "has no result on") if verb in groups
    ]
    return f"{attention} {'; '.join(parts)}."


def _verdict(result: Result, mean: float) -> tuple[str, str]:
    """A verb and a detail."""
    floors, score = result.floors, format_score(mean)
    if result.steps is not None:
        return "solves", f"{result.steps:g} steps"
    if floors is not None and mean <= floors.chance + MARGIN:
        return "is at chance on", score
    if floors is not None and floors.bag_level is not None and mean <= floors.bag_level + MARGIN < SOLVED:
        return "is not above the bag level on", f"{score}; bag level {format_score(floors.bag_level)}"
    return "solves in part", score
