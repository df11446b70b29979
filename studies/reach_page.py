"""Does a shift schedule that reaches every token help? The tables of studies/permutations.md and their figure.

They follow from results/reach.json, one run a line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from marked_sections import with_section
from matplotlib.axes import Axes
from results import RESULTS, interval

from sliceformer_lab.measures.drawing import MUTED, Chart, legend_of, look_at, save_chart
from sliceformer_lab.measures.statistics import estimate_over_seeds, holm, sign_flip_test
from sliceformer_lab.runs.plain_text import markdown_table

FILE, PAGE = RESULTS / "reach.json", RESULTS.parent / "permutations.md"
DISTANCES = {128: 37, 256: 101, 512: 201, 1024: 397}  # tokens -> distance of the symbol that is asked for
Key = tuple[str, str | None, int | None]  # attention, schedule of its shifts, group size
ROWS: dict[Key, str] = {
    ("csp", "linear_paper", 1): "`csp`, `linear_paper`, shift alone",
    ("csp", "linear_paper", 2): "`csp`, `linear_paper`",
    ("csp", "linear_coprime", 1): "`csp`, `linear_coprime`, shift alone",
    ("csp", "linear_coprime", 2): "`csp`, `linear_coprime`",
    ("csp_unit_shift", "unit", 1): "`csp_unit_shift`, shift alone",
    ("mha", None, None): "`mha`",
    ("depthwise_conv", None, None): "`depthwise_conv`",
    ("random_permutation", None, None): "`random_permutation`",
    ("identity", None, None): "`identity`",
}
DRAWN: dict[Key, str] = {
    ("csp", "linear_coprime", 1): "shift alone, coprime stride (ours)",
    ("csp", "linear_coprime", 2): "CSP with pairs, coprime stride (ours)",
    ("csp", "linear_paper", 1): "shift alone, published stride",
    ("csp", "linear_paper", 2): "CSP with pairs, published stride",
    ("mha", None, None): "softmax attention",
    ("random_permutation", None, None): "random permutation",
}
PICTURE, CHANCE = RESULTS.parent / "figures" / "reach.png", 1 / 16  # of the 16 symbols
Run = Mapping[str, Any]


def read() -> list[Run]:
    """The committed runs."""
    runs: list[Run] = json.loads(FILE.read_text(encoding="utf-8"))
    return runs


def back_table(runs: Iterable[Run]) -> str:
    """Test accuracy of `probe_back` for each seed, with the steps to .99, a column for each length."""
    runs = list(runs)
    header = ["", *(f"{tokens:,} tokens, {distance} before" for tokens, distance in DISTANCES.items())]
    rows = []
    for row, label in ROWS.items():
        cells = [_back_cell([run for run in runs if _is(run, "probe_back", row, tokens)]) for tokens in DISTANCES]
        if any(cells):
            rows.append([label, *(cell or "–" for cell in cells)])
    return markdown_table(header, *rows)


def picture_table(runs: Iterable[Run]) -> str:
    """Test accuracy on pictures in percent with Student's 95 % interval over seeds."""
    runs = list(runs)
    rows = []
    for row, label in ROWS.items():
        if own := [run for run in runs if _is(run, "mnist", row)]:
            accuracy = interval(100 * np.array([run["test/accuracy"] for run in own]))
            rows.append([label, str(len(own)), accuracy, f"{own[0]['parameters']:,}"])
    return markdown_table(["", "seeds", "test accuracy, %", "parameters"], *rows)


def difference_table(runs: Iterable[Run]) -> str:
    """The complete less the published schedule on pictures, with and without pairs; Holm's family is the two rows."""
    runs, found = list(runs), {}
    for size, label in ((1, "shift alone"), (2, "with sorted pairs")):
        ours, theirs = (
            {run["seed"]: 100 * run["test/accuracy"] for run in runs if _is(run, "mnist", ("csp", shift, size))}
            for shift in ("linear_coprime", "linear_paper")
        )
        found[label] = [ours[seed] - theirs[seed] for seed in ours]
    estimates = {label: estimate_over_seeds(values) for label, values in found.items()}
    known = {label: one for label, one in estimates.items() if one is not None}
    exact = holm([sign_flip_test(values) for values in found.values()])
    student = holm([one.p() for one in known.values()])
    rows = [
        [label, f"{one.mean:+.2f} ± {one.interval().half_width:.2f}", "–" if p is None else f"{p:.4f}", f"{flip:.4f}"]
        for (label, one), p, flip in zip(known.items(), student, exact, strict=True)
    ]
    header = [
        "`linear_coprime` minus `linear_paper`",
        "points, ± over seeds",
        "Holm p, Student's",
        "Holm p, sign flips",
    ]
    return markdown_table(header, *rows)


def draw() -> None:
    """Test accuracy of `probe_back` by length: a marker a seed, a line through their means."""
    runs = read()
    looks = {label: look_at(place, control=False) for place, label in enumerate(DRAWN.values())}

    def draw_rows(axes: Axes) -> None:
        for (row, label), look in zip(DRAWN.items(), looks.values(), strict=True):
            own = [[run for run in runs if _is(run, "probe_back", row, tokens)] for tokens in DISTANCES]
            scores = [[run["test/accuracy"] for run in of_a_length] for of_a_length in own]
            points = [(place, score) for place, some in enumerate(scores) for score in some]
            axes.plot(*zip(*points, strict=True), look.marker, color=look.colour, markerfacecolor="none")
            means = [np.mean(some) for some in scores]
            axes.plot(means, color=look.colour, marker=look.marker, linestyle=look.line, label=label)
        axes.axhline(CHANCE, color=MUTED, linestyle=":")
        axes.text(1.5, CHANCE, "chance", color=MUTED, ha="center", va="bottom")
        lengths = [f"{tokens:,}\n{distance} before" for tokens, distance in DISTANCES.items()]
        axes.set_xticks(range(len(DISTANCES)), lengths)
        axes.set(xlabel="tokens, and the distance of the symbol that is asked for", ylabel="test accuracy")

    save_chart(Chart(panels=[draw_rows], legend=legend_of(looks), size=(6.4, 3.6)), PICTURE)


def page() -> str:
    """The page with its tables between their markers."""
    text, runs = PAGE.read_text(encoding="utf-8"), read()
    text = with_section(text, "reach, probe_back", back_table(runs))
    text = with_section(text, "reach, mnist", picture_table(runs))
    return with_section(text, "reach, differences", difference_table(runs))


def _is(run: Run, task: str, row: Key, tokens: int | None = None) -> bool:
    own = run["attention"], run["shift"], run["group_size"]
    return run["task"] == task and own == row and tokens in (None, run["tokens"])


def _back_cell(runs: list[Run]) -> str:
    runs = sorted(runs, key=lambda run: run["seed"])
    steps = [run["steps_to_stop_at"] for run in runs]
    reached = sorted({step for step in steps if step})
    words = f"{reached[0]}" if len(reached) == 1 else f"{reached[0]} to {reached[-1]}" if reached else ""
    if reached and not all(steps):
        words = f"{len([step for step in steps if step])} of {len(steps)}: {words}"
    accuracies = ", ".join(f"{run['test/accuracy']:.3f}" for run in runs)
    return f"{accuracies} ({words})" if words else accuracies
