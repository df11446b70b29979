"""The verdicts of the studies of swaps: tables and sentences in README.md, and a figure, from the committed lines.

Here are the curves of MiniLM; `tuned_page` has its fine-tuning, `vit_page` the ViT.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from intervals import correct, mean_estimate
from marked_sections import with_section
from matplotlib.axes import Axes
from tuned_page import tuned_results
from vit_page import vit_results

from sliceformer_lab.commands.compare.sentences import format_p, list_names
from sliceformer_lab.commands.swap.swap_verdict import format_points
from sliceformer_lab.measures.drawing import Chart, Look, legend_of, looks_of, save_chart
from sliceformer_lab.measures.statistics import LEVEL, Estimate, estimate_crossed, holm
from sliceformer_lab.runs.controls import is_control
from sliceformer_lab.runs.plain_text import markdown_table

FOLDER = Path(__file__).resolve().parent
PAGE = FOLDER / "README.md"
ROWS = ("csp", "csp_shift_only", "sliceformer", "local", "mean", "random_permutation", "identity", "mha")
RIVALS = ROWS[1:-1]  # of csp, in the family of Holm's correction
CONTROLS = ("random_permutation", "identity")
SETS = (*[f"top {k}" for k in range(1, 6)], *[f"bottom {k}" for k in range(1, 6)], "all")
TASKS, THIRD = ("agnews", "SST-2"), ("newsgroups",)
ALLOWED = 0.01  # that the score may fall, one point

Place = tuple[str, str, str]  # attention, layers, stage
Lines = Mapping[Place, Mapping[str, Mapping[str, Any]]]  # -> task -> line
ORIGINAL: Place = ("original", "none", "none")


def read_lines(tasks: Sequence[str]) -> Lines:
    """The last line of every row on each of these tasks, without fine-tuning; rows with all of them only."""
    found: dict[Place, dict[str, Mapping[str, Any]]] = {}
    for line in read_all():
        if line["task"] in tasks and line["stage"] != "tuned":
            found.setdefault((line["attention"], line["layers"], line["stage"]), {})[line["task"]] = line
    return {place: known for place, known in found.items() if set(known) == set(tasks)}


def read_all() -> list[dict[str, Any]]:
    """All lines."""
    return [json.loads(text) for text in (FOLDER / "results.jsonl").read_text("utf-8").splitlines()]


def score(lines: Lines, place: Place) -> float:
    """The mean accuracy of the tasks."""
    return float(np.mean([line["accuracy"] for line in lines[place].values()]))


def difference(lines: Lines, ours: Place, theirs: Place) -> Estimate:
    """Our score less theirs, paired over the test texts of each task."""
    pairs = [(line, lines[theirs][task]) for task, line in lines[ours].items()]
    return mean_estimate([estimate_crossed((correct(one) - correct(other))[None]) for one, other in pairs])


def allowed_layers(lines: Lines, attention: str) -> int:
    """The largest k with `top k` at most one point below the original; 6 for all layers."""
    floor = score(lines, ORIGINAL) - ALLOWED - 1e-9
    places = [(attention, f"top {k}" if k < 6 else "all", "layers") for k in range(1, 7)]
    return max((k for k, place in enumerate(places, start=1) if score(lines, place) >= floor), default=0)


def family(lines: Lines) -> list[tuple[str, str, Estimate, float | None]]:
    """csp less each rival in the top layers that csp allows and in all: rival, layers, difference, adjusted p."""
    sets = dict.fromkeys([f"top {min(5, max(1, allowed_layers(lines, 'csp')))}", "all"])
    pairs = [(rival, name) for name in sets for rival in RIVALS]
    found = [difference(lines, ("csp", name, "layers"), (rival, name, "layers")) for rival, name in pairs]
    p_values = holm([one.p() for one in found])
    return [(*pair, one, p) for pair, one, p in zip(pairs, found, p_values, strict=True)]


def score_table(lines: Lines, sets: Sequence[str] = SETS) -> str:
    def cell(place: Place) -> str:
        return f"{100 * score(lines, place):.1f}" if place in lines else "–"

    rows = [[f"`{row}`", *[cell((row, name, "layers")) for name in sets]] for row in ROWS]
    if sets == SETS:
        rows = [[*cells, cell((row, "all", "together"))] for row, cells in zip(ROWS, rows, strict=True)]
    return markdown_table(["score", *sets, *(["all, together"] if sets == SETS else [])], *rows)


def closeness_table(lines: Lines) -> str:
    head = [
        "attention",
        "error by layer, 0 to 5",
        "cosine, top 3",
        "cosine, all",
        "same class, top 3",
        "same class, all",
    ]
    rows = []
    for row in ROWS:
        places = [(row, name, "layers") for name in ("top 3", "all")]
        if places[1] in lines:
            errors = " ".join(f"{error:.2f}" for error in lines[places[1]][TASKS[0]]["errors"])
            cells = [_mean(lines, place, key) for key in ("cosine", "agreement") for place in places]
            rows.append([f"`{row}`", errors, *cells])
    return markdown_table(head, *rows)


def _mean(lines: Lines, place: Place, key: str) -> str:
    return f"{np.mean([line[key] for line in lines[place].values()]):.3f}" if place in lines else "–"


def family_table(found: Sequence[tuple[str, str, Estimate, float | None]]) -> str:
    rows = [[f"`{rival}`", name, format_points(one), format_p(p)] for rival, name, one, p in found]
    return markdown_table(["csp minus", "layers", "points", "p (Holm)"], *rows)


def verdict(lines: Lines, found: Sequence[tuple[str, str, Estimate, float | None]]) -> str:
    """The finding, in sentences."""
    names = dict.fromkeys(name for _, name, _, _ in found)
    controls = [one for one in found if one[0] in CONTROLS]
    shown = [(rival, name, one.mean) for rival, name, one, p in found if p is not None and p < LEVEL]
    better = [f"`{rival}` ({name})" for rival, name, mean in shown if rival in CONTROLS and mean > 0]
    worse = [f"`{rival}` ({name})" for rival, name, mean in shown if mean < 0]
    if len(better) == len(controls):
        first = "**CSP is better than a random permutation and than no mixing, at both places.**"
    elif better:
        first = f"**CSP is better than {' and '.join(better)}, and not at the other places.**"
    else:
        first = "**CSP is not shown to heal better than a random permutation or than no mixing at all.**"
    if worse:
        first += f" It is worse than {list_names(worse)}."
    counts = ", ".join(f"{allowed_layers(lines, row)} with `{row}`" for row in ROWS[:-1])
    loss = format_points(difference(lines, ("csp", "all", "layers"), ORIGINAL))
    return (
        f"{first} Layers that can be replaced from the top before the score falls by a point: {counts}. "
        f"The original has {100 * score(lines, ORIGINAL):.1f}; with `csp` in all six layers "
        f"the difference is {loss} points. The table compares at {' and '.join(names)}."
    )


def results(lines: Lines) -> str:
    """The section of the page."""
    found = family(lines)
    return "\n\n".join(
        [
            verdict(lines, found),
            family_table(found),
            "The score, the mean accuracy of AG News and SST-2 in percent:",
            score_table(lines),
            "How close the healed models are to the original: the error of each block on held-out reviews (0 is equal, "
            "1 is a constant), and means over test texts.",
            closeness_table(lines),
            "![Score against the number of layers replaced; the dashed line is one point below the original]"
            "(../figures/swap.png)",
        ]
    )


def third_results(lines: Lines) -> str:
    """The section of 20 Newsgroups by logistic regression."""
    sets = (*[f"top {k}" for k in range(1, 6)], "all")
    found = family(lines)
    return "\n\n".join([verdict(lines, found), family_table(found), "Accuracy, %:", score_table(lines, sets)])


def cost_tables() -> str:
    """Times and memory by length, from what swap_times.py has measured."""
    times, memory = (json.loads((FOLDER / name).read_text("utf-8")) for name in ("times.json", "memory.json"))
    timed = [
        [f"{one['length']:,}", f"{one['ms']['mha']:.0f}", *[f"{one['times_faster'][row]:.2f}" for row in ROWS[:-1]]]
        for one in times["lengths"]
    ]
    order = ("mha", *ROWS[:-1])
    sizes = [[f"{one['length']:,}", *[f"{one['mb'][row]:.0f}" for row in order]] for one in memory["lengths"]]
    how = f"medians of {times['rounds']} rounds, processor time, load {times['load']:.0f} on two cores"
    longest = memory["lengths"][-1]
    apart = max(longest["mb"].values()) / min(longest["mb"].values()) - 1
    return "\n\n".join(
        [
            "Time of one pass of an encoder of this size, batch 1, one thread: milliseconds of softmax attention, and "
            f"how many times faster each row is ({how}, [`swap_times.py`](../README.md#measured-once)):",
            markdown_table(["tokens", "`mha`, ms", *[f"`{row}`" for row in ROWS[:-1]]], *timed),
            "Megabytes that such a pass takes at its peak, beside the weights. The kernel of softmax attention keeps "
            f"no map of all pairs: at {longest['length']:,} tokens the rows differ by {apart:.0%}.",
            markdown_table(["tokens", *[f"`{row}`" for row in order]], *sizes),
        ]
    )


def draw() -> None:
    """Score against the number of layers replaced: two tasks from both sides, the third from the top."""
    lines, third = read_lines(TASKS), read_lines(THIRD)
    panels = ((lines, "top", "AG News, SST-2"), (lines, "bottom", "AG News, SST-2"), (third, "top", "20 Newsgroups"))
    looks = looks_of({row: is_control(row) for row in ROWS[:-1]})
    drawn = [
        partial(_draw_scores, scored=scored, side=side, title=title, looks=looks) for scored, side, title in panels
    ]
    save_chart(Chart(panels=drawn, legend=legend_of(looks), size=(4.0, 3.4)), FOLDER.parent / "figures" / "swap.png")


def _draw_scores(axes: Axes, scored: Lines, side: str, title: str, looks: Mapping[str, Look]) -> None:
    original = 100 * score(scored, ORIGINAL)
    for row, look in looks.items():
        places: dict[int, Place] = {k: (row, f"{side} {k}" if k < 6 else "all", "layers") for k in range(1, 7)}
        known = {k: 100 * score(scored, place) for k, place in places.items() if place in scored}
        means = [original, *known.values()]
        axes.plot([0, *known], means, color=look.colour, marker=look.marker, linestyle=look.line, linewidth=1)
    axes.axhline(original - 1, color="grey", linewidth=0.8, linestyle="--")
    axes.set(title=title, xlabel=f"layers replaced, from the {side}", ylabel="mean accuracy, %", xticks=range(7))


def page() -> str:
    """The page with its sections between their markers."""
    lines, text = read_lines(TASKS), PAGE.read_text("utf-8")
    text = with_section(text, "results", f"{results(lines)}\n\n{cost_tables()}")
    text = with_section(text, "newsgroups", third_results(read_lines(THIRD)))
    text = with_section(text, "tuned", tuned_results(read_all(), (*TASKS, *THIRD)))
    return with_section(text, "vit", vit_results())
