"""Writes the report of a map, picture, Markdown and JSON lines, prints its table and sentences, and sends them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from sliceformer_lab.commands.compare.compare_options import repeat_command
from sliceformer_lab.commands.compare.compare_tables import Rows, as_records
from sliceformer_lab.commands.compare.sentences import list_names, version_note
from sliceformer_lab.commands.map.draw_map import BAG, CHANCE, draw_map, format_share, steps_shown
from sliceformer_lab.commands.map.map_options import MapOptions
from sliceformer_lab.commands.map.map_results import Map, Result
from sliceformer_lab.commands.map.rate_search import MARGIN, MAX_BEHIND, NUM_FINALISTS, SOLVED
from sliceformer_lab.runs.files import write_text
from sliceformer_lab.runs.plain_text import markdown_table
from sliceformer_lab.runs.printed_table import print_tables
from sliceformer_lab.training.results.observers import Observer
from sliceformer_lab.training.results.wandb_names import is_wandb
from sliceformer_lab.training.results.wandb_runs import send_results

PICTURE = "map.png"
SOLVES, IN_PART, AT_BAG_LEVEL = "solves", "solves in part", "is not above the bag level on"
AT_CHANCE, CANNOT_RUN, NO_RESULT = "is at chance on", "cannot run", "has no result on"
DIVERGES = "diverges at every learning rate on"
VERBS = (SOLVES, IN_PART, AT_BAG_LEVEL, AT_CHANCE, DIVERGES, CANNOT_RUN, NO_RESULT)


def write_map(found: Map, folder: Path) -> None:
    """Write map.png, map.md and map.jsonl into `folder`, and print the table and the sentences."""
    folder.mkdir(parents=True, exist_ok=True)
    draw_map(found, folder / PICTURE)
    lines = [json.dumps(as_json(result), allow_nan=False) for result in found.results.values()]
    write_text(folder / "map.jsonl", "\n".join(lines) + "\n")
    write_text(folder / "map.md", markdown(found))
    notes = [*sentences(found), *version_note(found.commits), str(folder / "map.md")]
    print_tables({"Test accuracy (steps to .99)": score_table(found)}, notes)


def send_map(found: Map, report: Path, logger: object) -> None:
    """Sends the sentences, tables and picture in `report` to W&B if the runs are there; a failure is a warning."""
    if not is_wandb(logger):
        return
    options, said = found.options, " ".join(sentences(found))
    numbers: dict[str, Any] = {"verdict": said}
    for (attention, probe), result in found.results.items():
        values = {"n": len(result.scores), "mean": result.mean, "steps": result.steps}
        numbers |= {f"map/{attention}/{probe}/{key}": value for key, value in values.items()}
    send = partial(
        send_results,
        report.parent,
        f"map of {', '.join(options.attentions)}",
        logger,
        notes=said,
        job_type="probe",
        tags=options.probes,
        config={"attentions": list(options.attentions), "probes": list(options.probes), "command": command_of(options)},
        tables={"map/scores": as_records(score_table(found)), "map/runs": as_records(run_table(found))},
        pictures={"map": (str(report / PICTURE), "")},
        numbers=numbers,
    )
    Observer("sending the map to W&B").run(send)


def as_json(result: Result) -> dict[str, object]:
    """A cell as one line of map.jsonl."""
    floors = result.cell.floors
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


def command_of(options: MapOptions) -> str:
    """The command line that repeats a map."""
    return repeat_command("map", {"attention": options.attentions, "probe": options.probes}, options)


def markdown(found: Map) -> str:
    """The content of map.md."""
    reasons, failed = [], []
    for result in found.results.values():
        name = f"- `{result.cell.attention}` on {result.cell.probe}"
        reasons += [f"{name}: {result.reason}"] if result.reason else []
        failed += [
            f"{name}, lr {run.rate:g}, seed {run.seed}: {run.status}, {run.error}"
            for run in (*result.tuning, *result.reporting)
            if run.status != "ok"
        ]
    parts = [
        "# Capability map",
        f"```bash\n{command_of(found.options)}\n```",
        f"![Attentions by probes]({PICTURE})",
        markdown_table(*score_table(found)),
        protocol(found.options),
        "\n".join(f"- {line}" for line in [*sentences(found), *version_note(found.commits)]),
        "## Runs",
        markdown_table(*run_table(found)),
        *(["## Empty cells", "\n".join(reasons)] if reasons else []),
        *(["## Failed runs", "\n".join(failed)] if failed else []),
    ]
    return "\n\n".join(parts) + "\n"


def protocol(options: MapOptions) -> str:
    """What was done, as sentences."""
    first, *others = options.reporting_seeds
    seeds = f"seeds {first} to {others[-1]}" if others else f"seed {first}"
    rates = ", ".join(f"{rate:g}" for rate in options.rates)
    tried = f"rates {rates} are" if options.rates[1:] else f"rate {rates} is"
    spread = "Brackets: lowest and highest seed." if others else "One seed shows no spread."
    one, two, three = options.tuning_seeds
    return (
        f"The learning {tried} tried with seed {one} and scored on validation: the first two, then neighbours of the "
        f"best so far. One that reaches {SOLVED:g} within half of its steps ends the search; a later one is tried with "
        f"seed {two}, and ends it if their mean does. Two rates at chance end it too. Otherwise the best "
        f"{NUM_FINALISTS} get seed {two} if they are within {MAX_BEHIND:g}; where the two seeds disagree, seed {three} "
        f"decides. A run that diverged counts as chance. The best one is trained again with {seeds} and scored on the "
        "test set once. All cells follow this rule; one that is solved early has fewer trials, and its steps are those "
        "of the first rate that solves it, not of the fastest.\n"
        f"{spread} Scores within the budget of steps of each probe, not at convergence. Runs that reach {SOLVED:g} "
        "stop there, so scores above it are not comparable. The rows have the order of the command. No mean over "
        "probes is taken: this is a profile, not a ranking. All rows have one width, so their parameters differ "
        "(below); budget=params:mha makes them equal where it can."
    )


def score_table(found: Map) -> Rows:
    """A head, a row for each attention, and the two floors."""
    attentions, probes, floors = found.options.attentions, found.options.probes, found.floors
    return [
        ["", *probes],
        *([name, *(_format_share(found.results[name, probe]) for probe in probes)] for name in attentions),
        [BAG, *(format_share(one.bag_level if one else None) for one in floors)],
        [CHANCE, *(format_share(one.chance if one else None) for one in floors)],
    ]


def _format_share(result: Result) -> str:
    scores, seeds = result.scores, result.cell.options.seeds
    if result.mean is None:
        known = [run.value for run in result.tuning if run.value is not None]
        if result.all_diverged:
            return "diverged"
        return "cannot run" if result.reason else f"validation {format_share(max(known))} so far" if known else ""
    spread = f" [{format_share(min(scores))}, {format_share(max(scores))}]" if len(scores) > 1 else ""
    steps = f" ({steps_shown(result)})" if steps_shown(result) else ""
    missing = f" ({len(scores)} of {seeds} seeds)" if len(scores) < seeds else ""
    diverged = f" ({result.diverged} diverged)" if result.diverged else ""
    return f"{format_share(result.mean)}{spread}{steps}{missing}{diverged}"


def run_table(found: Map) -> Rows:
    """A head, and for each cell with runs its parameters, the validation score of each learning rate and the time."""
    rows = [["probe", "attention", "parameters", "validation by learning rate", "chosen", "runs", "processor seconds"]]
    for result in found.results.values():
        if not result.tuning:
            continue
        trials = ", ".join(f"{run.rate:g} (seed {run.seed}): {format_share(run.value)}" for run in result.tuning)
        runs = [*result.tuning, *result.reporting]
        seconds = sum(run.seconds or 0.0 for run in runs)
        rate = "" if result.rate is None else f"{result.rate:g}{', at the edge' if result.at_edge else ''}"
        size = "" if result.parameters is None else f"{result.parameters:,}"
        cell = result.cell
        rows.append([cell.probe, cell.attention, size, trials, rate, str(len(runs)), f"{seconds:.0f}"])
    return rows


def sentences(found: Map) -> list[str]:
    """One sentence for each attention: what it solves, does in part, and does not do."""
    trial = ["The runs are a trial of a few batches, no result."] if found.options.is_trial else []
    return trial + [
        _write_sentence(attention, [found.results[attention, probe] for probe in found.options.probes])
        for attention in found.options.attentions
    ]


def _write_sentence(attention: str, results: Sequence[Result]) -> str:
    found: dict[str, list[str]] = {verb: [] for verb in VERBS}
    for result in results:
        verb, detail = _decide_verdict(result)
        if result.diverged:
            detail += f"; {result.diverged} of {len(result.scores)} runs diverged and count as chance"
        found[verb].append(f"{result.cell.probe}{f' ({detail})' if detail else ''}")
    return f"{attention} {'; '.join(f'{verb} {list_names(probes)}' for verb, probes in found.items() if probes)}."


def _decide_verdict(result: Result) -> tuple[str, str]:
    """One of VERBS and a detail."""
    floors, mean = result.cell.floors, result.mean
    if mean is None or floors is None:
        return DIVERGES if result.all_diverged else CANNOT_RUN if result.reason else NO_RESULT, ""
    if result.steps is not None:
        return SOLVES, f"{result.steps:g} steps"
    if mean <= floors.chance + MARGIN:
        return AT_CHANCE, format_share(mean)
    if floors.bag_level is not None and mean <= floors.bag_level + MARGIN < SOLVED:
        return AT_BAG_LEVEL, f"{format_share(mean)}; bag level {format_share(floors.bag_level)}"
    return IN_PART, format_share(mean)
