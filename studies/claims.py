"""Claims of the papers that small runs can test: tables of studies/claims.md and study.md, and how fast each learns.

`make docs` writes them, and figures/convergence.png, from results/claims_digits.jsonl, claims_imdb.jsonl and
claims_samsa.jsonl. Runs of a study have the same seeds, so that differences are
paired. Scores of single examples were not kept, so ± and p are over seeds. Each claim is a family of tests of its own,
adjusted by Holm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from marked_sections import with_section
from numpy.typing import NDArray
from results import RESULTS, interval, read

from sliceformer_lab.commands.compare.sentences import format_p
from sliceformer_lab.measures.drawing import Chart, Look, legend_of, save_chart
from sliceformer_lab.measures.line_panels import ROW, line_panel, seed_means
from sliceformer_lab.measures.statistics import (
    Estimate,
    estimate_over_seeds,
    holm,
    smallest_difference,
)
from sliceformer_lab.runs.plain_text import markdown_table

METRIC = "test/accuracy"
PAGE, STUDY_PAGE = (RESULTS.parent / name for name in ("claims.md", "study.md"))
PICTURE = RESULTS.parent / "figures" / "convergence.png"
Pairs = list[tuple[str, str]]
DIGITS_ROWS = (
    *("csp", "mha", "sliceformer", "sliceformer_interleave_published", "csp_random_order", "csp_shift_only"),
    *("csp_sort_only", "random_permutation", "mean", "identity"),
)
CLAIMS: dict[str, dict[str, Pairs]] = {  # study -> claim -> its comparisons: an attention, and what it is compared with
    "claims_digits": {
        "CSP, Table 1: 8 shifted heads < 8 softmax heads < 64 shifted channels": [
            ("csp_head_block", "mha"),
            ("csp_unit_shift", "mha"),
            ("csp_unit_shift", "csp_head_block"),
        ],
        "Values twice as wide give CSP the parameters of softmax attention": [("csp_wide", "csp")],
        "Sliceformer, Tables 2 and 4: other sorts against the ascending one": [
            ("sliceformer_max", "sliceformer"),
            ("sliceformer_interleave", "sliceformer"),
            ("sliceformer_interleave_published", "sliceformer"),
        ],
        "Controls": [
            ("csp", "random_permutation"),
            ("csp_unit_shift", "random_permutation"),
            ("sliceformer", "identity"),
        ],
    },
    "controls_digits": {
        "CSP against the nine other rows": [("csp", name) for name in DIGITS_ROWS if name != "csp"],
        "Softmax attention against the nine other rows": [("mha", name) for name in DIGITS_ROWS if name != "mha"],
    },
    "controls_cifar10": {
        "CSP and a sort against controls": [
            ("csp", "random_permutation"),
            ("csp", "identity"),
            ("csp", "mha"),
            ("sliceformer", "mha"),
            ("sliceformer", "identity"),
        ],
    },
    "claims_imdb": {
        "Sliceformer, Table 5: sorting instead of softmax": [("sliceformer", "mha"), ("csp", "mha")],
        "Controls": [("mha", "identity"), ("sliceformer", "identity"), ("csp", "identity")],
    },
}
LOOKS = {  # attention -> its name in the figure and its colour
    "csp": ("CSP", "#0072B2"),
    "sliceformer": ("Sliceformer", "#009E73"),
    "mha": ("softmax", "#D55E00"),
    "random_permutation": ("random permutation", "#555555"),
    "identity": ("identity (no mixing)", "#CC79A7"),
}


def scores(runs: Iterable[Mapping[str, Any]]) -> dict[str, dict[int, float]]:
    """The test score of each attention and seed."""
    found: dict[str, dict[int, float]] = {}
    for run in runs:
        metrics = run.get("metrics", run)  # a line of a claim has no more than one score
        found.setdefault(run["attention"], {})[run["seed"]] = metrics[METRIC]
    return found


def table(study: str) -> str:
    """A Markdown table: the comparisons of a study's claims, with intervals over seeds and adjusted p values.

    The last column is the true difference that Student's test finds with power .8 at the first step of Holm's
    correction over the claim.
    """
    found = scores(read(study))
    header = ["test accuracy, %", "compared with", "difference, ± over seeds", "Holm p", "could see"]
    rows = []
    for claim, pairs in CLAIMS[study].items():
        estimates = [_difference(found[a], found[b]) for a, b in pairs]
        rows.append([f"**{claim}**", "", "", "", ""])
        adjusted = holm([one.p() for one in estimates])
        for (a, b), one, p in zip(pairs, estimates, adjusted, strict=True):
            half = one.interval().half_width
            both = [f"`{name}` {interval(as_percent(found[name]))}" for name in (a, b)]
            sees = f"{smallest_difference(one, len(pairs)):.2g}"
            rows.append([*both, f"{one.mean:+.2f} ± {half:.2f}", format_p(p), sees])
    return markdown_table(header, *rows)


def _difference(first: Mapping[int, float], second: Mapping[int, float]) -> Estimate:
    """The mean paired difference in points over the seeds that both have. Raises ValueError for fewer than two."""
    values = [100 * (first[seed] - second[seed]) for seed in sorted(set(first) & set(second))]
    estimate = estimate_over_seeds(values)
    if estimate is None:
        raise ValueError("a difference needs at least two seeds")
    return estimate


def runs_table(task: str, metric: str) -> str:
    """A Markdown table of results/modalities.jsonl: validation and test scores of one task, with ± over seeds."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for run in read("modalities"):
        if run["task"] == task:
            found.setdefault((run["attention"], run["setting"]), []).append(run)
    rows = []
    for (name, setting), runs in found.items():
        scores = [interval(np.array([run["metrics"][f"{part}/{metric}"] for run in runs])) for part in ("val", "test")]
        size = f"{runs[0]['protocol']['num_train']:,}"
        rows.append([f"`{name}`{f', `{setting}`' if setting else ''}", f"{len(runs)}", size, *scores])
    return markdown_table(["", "seeds", "training examples", f"validation {metric}", f"test {metric}"], *rows)


def samsa_table() -> str:
    """A Markdown table: losses at the end of training, and the best epoch's accuracy, by the tokens sampled."""
    lines = [
        "| sampled tokens a head | training loss | validation loss | difference | test accuracy, % |",
        "|---|---|---|---|---|",
    ]
    by_size: dict[str, list[Mapping[str, Any]]] = {}
    for run in read("claims_samsa"):
        size = run["setting"].partition("=")[2]
        by_size.setdefault(size, []).append(run)
    for size, runs in sorted(by_size.items(), key=lambda item: int(item[0] or 10**6)):
        training, validation = (
            np.array([run["curves"][f"{part}/loss"][-1] for run in runs]) for part in ("train", "val")
        )
        accuracy = 100 * np.array([run[METRIC] for run in runs])
        cells = [interval(values) for values in (training, validation, validation - training, accuracy)]
        lines.append(f"| {size or 'all: `mha`'} | {' | '.join(cells)} |")
    return "\n".join(lines)


def page() -> str:
    """studies/claims.md with the tables between its markers."""
    text = PAGE.read_text(encoding="utf-8")
    for study in ("claims_digits", "claims_imdb"):
        text = with_section(text, study, table(study))
    for task, metric in (("imdb", "accuracy"), ("lra_listops", "accuracy"), ("qm9_gap", "mae")):
        text = with_section(text, f"runs of {task}", runs_table(task, metric))
    return with_section(text, "claims_samsa", samsa_table())


def study_page() -> str:
    """studies/study.md with the tables of its differences between its markers."""
    text = STUDY_PAGE.read_text(encoding="utf-8")
    for study in ("controls_digits", "controls_cifar10"):
        text = with_section(text, study, table(study))
    return text


def as_percent(by_seed: Mapping[int, float]) -> NDArray[np.float64]:
    """The scores of all seeds in percent."""
    return 100 * np.array(list(by_seed.values()))


def draw() -> None:
    """Write figures/convergence.png: training loss and validation accuracy over epochs, means with 95 % intervals."""
    runs, looks = read("claims_digits"), {name: Look(colour, "none") for name, colour in LOOKS.values()}
    panels = []
    for curve, title in {"train/loss": "training loss", "val/accuracy": "validation accuracy"}.items():
        points = [
            (LOOKS[run["attention"]][0], epoch, value)
            for run in runs
            if run["attention"] in LOOKS
            for epoch, value in enumerate(run["curves"][curve], start=1)
        ]
        table = seed_means(pd.DataFrame(points, columns=[ROW, "x", "value"]), [ROW, "x"])
        panels.append(line_panel(table, looks, x="epoch", title=title, metric=curve))
    save_chart(Chart(panels=panels, legend=legend_of(looks), size=(4.5, 3.2)), PICTURE)
