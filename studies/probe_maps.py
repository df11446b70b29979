"""Which mixing can each attention do, and what is the sort for? Tables and picture of studies/probes.md, from maps.

usage: python studies/probe_maps.py collect MAP_FOLDER         add the cells of a map to results/capability_map.json
       python studies/probe_maps.py collect MAP_FOLDER LABEL   the same for a map with other options; * is the attention
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from marked_sections import with_section
from PIL import Image
from results import RESULTS
from results import read as read_runs
from scipy import stats

from sliceformer_lab.commands.map.cells import Cell, Floors
from sliceformer_lab.commands.map.draw_map import draw_map, format_share
from sliceformer_lab.commands.map.map_options import MapOptions, ProbeName
from sliceformer_lab.commands.map.map_results import Map, ProbeRun, Result
from sliceformer_lab.measures.statistics import holm
from sliceformer_lab.runs.files import write_text
from sliceformer_lab.runs.plain_text import markdown_table

FILE, PAGE = RESULTS / "capability_map.json", RESULTS.parent / "probes.md"
PICTURE, SHORT_PICTURE = (RESULTS.parent / "figures" / f"{name}.png" for name in ("capability_map", "probes"))
PROBES: tuple[ProbeName, ...] = ("count", "recall", "back", "back_far", "rank", "select", "hist", "words")
SORT_PROBES = ("recall", "rank", "select", "hist", "words")
GROUPS = {
    "softmax and what replaces it": (
        *("mha", "differential", "softpick", "sliced_relu", "sinkformer", "espformer", "synthesizer"),
    ),
    "queries and keys on some tokens, or on summaries of them": (
        *("samsa", "local", "longformer", "bigbird", "sparse", "sinkhorn", "reformer", "luna", "linformer", "agent"),
    ),
    "linear attention and recurrences": (
        *("linear", "performer", "cosformer", "polaformer", "rala", "lion", "lion_selective", "hydra", "mega", "s4d"),
        *("hsm", "matrix_low_rank"),
    ),
    "shifts, permutations and sorts": (
        *("csp", "csp_shift_only", "csp_gated", "csp_random_order", "csp_causal"),
        *("shift", "token_reshape", "sliceformer", "sliceformer_reference"),
    ),
    "matrices and filters over positions": (
        *("mlp_mixer", "gmlp", "matrix_dense", "matrix_toeplitz", "matrix_toeplitz_data", "fnet", "depthwise_conv"),
    ),
    "controls": ("random_mixing", "pooling", "mean", "random_permutation", "identity"),
}
MAIN_ROWS = tuple(name for names in GROUPS.values() for name in names)
SHORT_ROWS = (
    *("mha", "samsa", "linear", "csp", "csp_shift_only", "sliceformer", "mlp_mixer"),
    *("mean", "random_permutation", "identity"),
)
SORT_ROWS = {
    "csp_shift_only": "no sort",
    "csp": "pairs",
    "csp_random_order": "pairs, each in a direction of its own",
    "csp_gated": "a learned gate between shifted and sorted value",
    "csp, group_size=4": "windows of 4",
    "csp, group_size=8": "windows of 8",
    "sliceformer": "the whole sequence",
    "hybrid, [csp, mha]": "pairs below softmax attention",
    "hybrid, [csp_shift_only, mha]": "no sort, below softmax attention",
    "hybrid, [depthwise_conv, mha]": "control: a convolution below softmax attention",
    "mha": "softmax attention in both layers",
    "random_permutation": "control",
    "identity": "control",
}
SIZES = ("csp", "csp_shift_only", "gmlp", "hydra", "rala", "polaformer")
SIZE_ROWS = ("mha", *(row for name in SIZES for row in (name, f"{name}, equal parameters")), "mlp_mixer", "identity")
PAIR_ROWS = ("mha", "linear", "csp", "csp_wide", "csp_random_order", "mean", "random_permutation", "identity")
PAIR_COLUMNS = {"2 pairs": ("recall", ", 2 pairs"), "4 pairs": ("recall", ", 4 pairs"), "8 pairs": ("recall", "")}
HYBRID_ROWS = {
    "hybrid, [mha, mha]": "softmax attention in both layers",
    "hybrid, [csp, mha]": "pairs below softmax attention",
    "hybrid, [csp_shift_only, mha]": "no sort",
    "hybrid, [sliceformer, mha]": "a complete sort",
    "hybrid, [depthwise_conv, mha]": "control: a convolution",
}
HYBRID_COLUMNS = {"key and value in two tokens": ("recall", ", two tokens")}
ORDERS = 10_000  # random orders of a permutation test
SPREAD = 0.05  # differences that the calibration calls meaningless
OF_CALIBRATION = ("recall", "back", "rank", "hist", "words")  # its `select` was shorter
CALIBRATED: Mapping[str, tuple[tuple[float, ...], ...]] = {  # the specification's table 1.5: scores of two seeds
    "mha": ((1.0, 1.0), (1.0, 1.0), (0.886, 0.862), (0.998, 0.988), (0.653, 0.687)),
    "linear": ((0.996, 0.995), (0.999, 0.980), (0.783, 0.774), (0.994, 0.990), (0.667, 0.679)),
    "samsa": ((1.0, 1.0), (0.919, 0.854), (0.570, 0.433), (0.346, 0.252), (0.646, 0.543)),
    "fnet": ((0.087, 0.102), (0.994, 0.999), (0.535, 0.568), (0.324, 0.276), (0.383, 0.459)),
    "csp": ((0.107, 0.106), (1.0, 1.0), (0.669, 0.662), (0.769, 0.594), (0.460, 0.382)),
    "csp_shift_only": ((0.111, 0.107), (1.0, 1.0), (0.702, 0.705), (0.759, 0.618), (0.753, 0.713)),
    "csp_random_order": ((0.100, 0.085), (0.996, 0.994), (0.682, 0.635), (0.615, 0.456), (0.540, 0.424)),
    "sliceformer": ((0.134, 0.134), (1.0, 1.0), (0.990, 0.987), (0.856, 0.779), (0.463, 0.495)),
    "sliceformer_reference": ((0.376, 0.374), (0.188, 0.188), (0.890, 0.900), (0.893, 0.883), (0.482, 0.407)),
    "random_permutation": ((0.093, 0.084), (0.992, 0.991), (0.572, 0.570), (0.464, 0.457), (0.378, 0.366)),
    "depthwise_conv": ((0.035, 0.033), (0.064, 0.062), (0.323, 0.320), (0.242, 0.226), (0.483, 0.477)),
    "mean": ((0.192, 0.188), (0.155, 0.156), (0.676, 0.680), (0.992, 0.997), (0.553, 0.495)),
    "identity": ((0.033,), (0.060,), (0.300,), (0.220,), (0.276,)),
}
TOO_SLOW = {("espformer", "back_far")}  # 25 minutes a run
OPTIONS = MapOptions(attentions=MAIN_ROWS, probes=PROBES, folder="")
Columns = Mapping[str, tuple[str, str]]  # heading -> probe, and what follows the attention's name in the row
Line = Mapping[str, Any]  # a cell, as map.jsonl has it, with the name of its row


def collect(folder: Path, label: str | None) -> None:
    """Add the cells of a map to the results, under `label` with the attention's name for *. The same are replaced."""
    lines = (folder / "report" / "map.jsonl").read_text(encoding="utf-8").splitlines()
    cells = {(cell["row"], cell["probe"]): cell for cell in read()}
    for cell in map(json.loads, lines):
        row = (label or "*").replace("*", cell["attention"])
        cells[row, cell["probe"]] = {"row": row, **cell}
    write_text(FILE, "[\n" + ",\n".join(json.dumps(cells[key]) for key in sorted(cells)) + "\n]\n")


def read() -> list[Line]:
    """The committed cells."""
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else []


def on(probes: Iterable[str]) -> Columns:
    """A column for each probe, of the map's own options."""
    return {probe: (probe, "") for probe in probes}


def table(rows: Mapping[str, str], columns: Columns) -> str:
    """Parameters, mean test accuracy, lowest and highest seed, and the median of the steps to .99; two floors below.

    Scores whose learning rate is the smallest or largest tried have a star.
    """
    cells = {(cell["row"], cell["probe"]): cell for cell in read()}
    found = {name: [cells.get((name + suffix, probe)) for probe, suffix in columns.values()] for name in rows}
    lines = []
    for name, own in found.items():
        if any(own):
            label = f"`{name}`" + (f": {rows[name]}" if rows[name] else "")
            lines.append([label, _sizes(own), *map(_shown, own)])
    for floor in ("bag_level", "chance"):
        by_column = zip(*found.values(), strict=True)
        values = [next((cell[floor] for cell in column if cell), None) for column in by_column]
        lines.append([floor.replace("_", " "), "", *map(format_share, values)])
    return markdown_table(["", "parameters, K", *columns], *lines)


def calibration() -> str:
    """The cells that are further from the calibration than its two seeds and .05, and how many are not."""
    scores = {(cell["row"], cell["probe"]): cell["score"] for cell in read()}
    lines = []
    for name, values in CALIBRATED.items():
        for probe, seeds in zip(OF_CALIBRATION, values, strict=True):
            beyond = max(min(seeds) - scores[name, probe], scores[name, probe] - max(seeds))
            if beyond > SPREAD:
                lines.append(
                    [f"`{name}`", probe, format_share(scores[name, probe]), " and ".join(map(format_share, seeds))]
                )
    count = len(CALIBRATED) * len(OF_CALIBRATION)
    within = format_share(SPREAD)
    text = f"{count - len(lines)} of {count} cells are within {within} of the calibration's two seeds. The others:"
    return f"{text}\n\n{markdown_table(['', 'probe', 'here, mean of three seeds', 'calibration, two seeds'], *lines)}"


def task_accuracies() -> dict[str, dict[str, float]]:
    """The mean test accuracy of each attention on digits, AG News and CIFAR-10, by the name of the task's column."""
    found: dict[str, dict[str, list[float]]] = {}
    side_by_side = json.loads((RESULTS / "all_attentions.json").read_text(encoding="utf-8"))["runs"]
    runs = [(run["task"], run["attention"], run["accuracy"]) for run in side_by_side]
    runs += [("cifar10", run["attention"], run["metrics"]["test/accuracy"]) for run in read_runs("controls_cifar10")]
    for task, attention, accuracy in runs:
        found.setdefault(task, {}).setdefault(attention, []).append(accuracy)
    return {task: {name: fmean(values) for name, values in by_name.items()} for task, by_name in found.items()}


def correlations() -> str:
    """Spearman's correlation of each probe with each task over attentions, with p and Holm's adjusted p."""
    scores = {(cell["row"], cell["probe"]): cell["score"] for cell in read()}
    tests, random = {}, np.random.default_rng(0)
    for task, accuracies in task_accuracies().items():
        for probe in PROBES:
            names = [name for name in accuracies if scores.get((name, probe)) is not None]
            ranks = [
                stats.rankdata([scores[name, probe] for name in names]),
                stats.rankdata([accuracies[name] for name in names]),
            ]
            rho = float(np.corrcoef(*ranks)[0, 1])
            orders = np.stack([random.permutation(ranks[1]) for _ in range(ORDERS)])
            centred = ranks[0] - ranks[0].mean()
            drawn = orders @ centred / (len(names) * ranks[0].std() * ranks[1].std())
            p = (1 + np.count_nonzero(np.abs(drawn) >= abs(rho) - 1e-9)) / (1 + ORDERS)
            tests[task, probe] = len(names), rho, float(p)
    adjusted = dict(zip(tests, holm([p for _, _, p in tests.values()]), strict=True))
    rows = []
    for task in task_accuracies():
        cells = [f"{tests[task, p][1]:+.2f} ({tests[task, p][2]:.3f}, {adjusted[task, p]:.2f})" for p in PROBES]
        rows.append([task, f"{max(tests[task, p][0] for p in PROBES)}", *cells])
    return markdown_table(["task", "attentions", *PROBES], *rows)


def draw() -> None:
    """Write studies/figures/capability_map.png, with MAIN_ROWS in groups, and probes.png, with SHORT_ROWS."""
    draw_map(_map(MAIN_ROWS), PICTURE, GROUPS)
    draw_map(_map(SHORT_ROWS), SHORT_PICTURE)
    for picture in (PICTURE, SHORT_PICTURE):  # 256 colours are enough, and a third of the bytes
        with Image.open(picture) as image:
            image.convert("RGB").quantize(256).save(picture, optimize=True)


def _map(rows: tuple[str, ...]) -> Map:
    options = MapOptions(attentions=rows, probes=PROBES, folder="")
    found = {(cell["row"], cell["probe"]): cell for cell in read()}
    floors = {cell["probe"]: Floors(cell["chance"], cell["bag_level"]) for cell in found.values() if cell["chance"]}
    results: dict[tuple[str, str], Result] = {
        (name, probe): _result(name, probe, options, found.get((name, probe)), floors[probe])
        for name in rows
        for probe in PROBES
    }
    return Map(options, results)


def _result(name: str, probe: str, options: MapOptions, found: Line | None, floors: Floors) -> Result:
    if found is None:
        return Result(Cell(name, probe, options, floors))
    tuning, reporting = (tuple(ProbeRun(**run) for run in found[part]) for part in ("tuning", "reporting"))
    return Result(Cell(name, probe, options, floors, found["reason"]), tuning, found["rate"], reporting)


def page() -> str:
    """The page with its tables between their markers."""
    sections = {
        "map": table(dict.fromkeys(MAIN_ROWS, ""), on(PROBES)),
        "calibration": calibration(),
        "equal sizes": table(dict.fromkeys(SIZE_ROWS, ""), on(("back_far", "words"))),
        "pairs": table(dict.fromkeys(PAIR_ROWS, ""), PAIR_COLUMNS),
        "two tokens": table(HYBRID_ROWS, HYBRID_COLUMNS),
        "sort": table(SORT_ROWS, on(SORT_PROBES)),
        "tasks": correlations(),
    }
    text = PAGE.read_text(encoding="utf-8")
    for name, content in sections.items():
        text = with_section(text, name, content)
    return text


def _sizes(cells: Iterable[Line | None]) -> str:
    """The fewest and the most parameters of a row, in thousands; they depend on the vocabulary and the length."""
    runs = [run for cell in cells if cell for run in (*cell["tuning"], *cell["reporting"])]
    sizes = [round(run["parameters"] / 1000) for run in runs if run["parameters"] is not None]  # None: refused
    if not sizes:
        return "–"
    fewest, most = min(sizes), max(sizes)
    return f"{fewest}" if fewest == most else f"{fewest} to {most}"


def _shown(cell: Line | None) -> str:
    if cell is None:
        return "–"
    floors = Floors(cell["chance"], cell["bag_level"])
    result = _result(cell["attention"], cell["probe"], OPTIONS, cell, floors)
    if not (scores := result.scores):
        return "cannot run" if cell["reason"] else "–"
    text = format_share(fmean(scores))
    if format_share(min(scores)) != format_share(max(scores)):
        text += f" [{format_share(min(scores))}, {format_share(max(scores))}]"
    star = "*" if result.at_edge else ""
    return text + star + (f" ({cell['steps']:g} steps)" if cell["steps"] is not None else "")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["collect", folder]:
            collect(Path(folder), None)
        case ["collect", folder, label]:
            collect(Path(folder), label)
        case _:
            sys.exit(__doc__)
