"""Which mixing can each attention do, and what is the sort for? Tables and picture of docs/probes.md, from maps.

usage: python studies/probe_maps.py                            write tables and picture (`make docs`)
       python studies/probe_maps.py collect MAP_FOLDER         add the cells of a map to results/capability_map.json
       python studies/probe_maps.py collect MAP_FOLDER LABEL   the same for a map of one attention with other options
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from growth import markdown
from marked_sections import with_section
from PIL import Image
from results import RESULTS

from sliceformer_lab.commands.map.cells import Cell, Floors
from sliceformer_lab.commands.map.draw_map import draw_map, shown
from sliceformer_lab.commands.map.map_options import MapOptions, ProbeName
from sliceformer_lab.commands.map.map_results import Map, Result, Run
from sliceformer_lab.runs.files import write_text

FILE, PAGE = RESULTS / "capability_map.json", RESULTS.parents[1] / "docs" / "probes.md"
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
TOO_SLOW = {("espformer", "back_far")}  # 25 minutes a run
OPTIONS = MapOptions(attentions=MAIN_ROWS, probes=PROBES, folder="")
Line = Mapping[str, Any]  # a cell, as map.jsonl has it, with the name of its row


def collect(folder: Path, label: str | None) -> None:
    """Add the cells of a map to the results, under `label` or their attention's name. The same cells are replaced."""
    lines = (folder / "report" / "map.jsonl").read_text(encoding="utf-8").splitlines()
    cells = {(cell["row"], cell["probe"]): cell for cell in read()}
    for cell in map(json.loads, lines):
        row = label or cell["attention"]
        cells[row, cell["probe"]] = {"row": row, **cell}
    write_text(FILE, "[\n" + ",\n".join(json.dumps(cells[key]) for key in sorted(cells)) + "\n]\n")


def read() -> list[Line]:
    """The committed cells."""
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else []


def table(rows: Mapping[str, str], probes: Iterable[str]) -> str:
    """Parameters, mean test accuracy, lowest and highest seed, and the median of the steps to .99; two floors below.

    Scores whose learning rate is at the edge of those tried have a star.
    """
    probes = list(probes)
    cells = {(cell["row"], cell["probe"]): cell for cell in read()}
    lines = []
    for name, description in rows.items():
        if any((name, probe) in cells for probe in probes):
            label = f"`{name}`" + (f": {description}" if description else "")
            own = [cells.get((name, probe)) for probe in probes]
            lines.append([label, _sizes(own), *map(_shown, own)])
    for floor in ("bag_level", "chance"):
        values = [next((cell[floor] for cell in cells.values() if cell["probe"] == probe), None) for probe in probes]
        lines.append([floor.replace("_", " "), "", *map(shown, values)])
    return markdown(["", "parameters, K", *probes], lines)


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
    results = {
        (name, probe): _result(Cell(name, probe, options), found.get((name, probe)), floors[probe])
        for name in rows
        for probe in PROBES
    }
    return Map(options, results, floors)


def _result(cell: Cell, found: Line | None, floors: Floors) -> Result:
    if found is None:
        return Result(cell, None, (), None, (), floors)
    tuning, reporting = (tuple(Run(**run) for run in found[part]) for part in ("tuning", "reporting"))
    return Result(cell, found["reason"], tuning, found["rate"], reporting, floors)


def page() -> str:
    """The page with both tables between their markers."""
    text = with_section(PAGE.read_text(encoding="utf-8"), "map", table(dict.fromkeys(MAIN_ROWS, ""), PROBES))
    return with_section(text, "sort", table(SORT_ROWS, SORT_PROBES))


def _sizes(cells: Iterable[Line | None]) -> str:
    """The fewest and the most parameters of a row, in thousands; they depend on the vocabulary and the length."""
    runs = [run for cell in cells if cell for run in (*cell["tuning"], *cell["reporting"])]
    fewest, most = (round(limit(run["parameters"] for run in runs) / 1000) for limit in (min, max))
    return f"{fewest}" if fewest == most else f"{fewest} to {most}"


def _shown(cell: Line | None) -> str:
    if cell is None:
        return "–"
    scores = [run["value"] for run in cell["reporting"] if run["value"] is not None]
    if not scores:
        return "cannot run" if cell["reason"] else "–"
    text = shown(fmean(scores))
    if shown(min(scores)) != shown(max(scores)):
        text += f" [{shown(min(scores))}, {shown(max(scores))}]"
    floors = Floors(cell["chance"], cell["bag_level"])
    star = "*" if _result(Cell(cell["attention"], cell["probe"], OPTIONS), cell, floors).at_edge else ""
    return text + star + (f" ({cell['steps']:g} steps)" if cell["steps"] is not None else "")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["collect", folder]:
            collect(Path(folder), None)
        case ["collect", folder, label]:
            collect(Path(folder), label)
        case []:
            pass
        case _:
            sys.exit(__doc__)
    draw()
    write_text(PAGE, page())
