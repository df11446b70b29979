"""Six attentions on street scenes: the figure, the verdict and the tables of studies/dense.md.

`make docs` writes them from results/dense_camvid.json: the verdict and the finished runs of an audit.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

from marked_sections import with_section
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sliceformer_lab.measures.drawing import COLOURS, INK, Chart, save_chart
from sliceformer_lab.measures.statistics import estimate_over_seeds
from sliceformer_lab.runs.plain_text import markdown_table

HERE = Path(__file__).resolve().parent
PAGE = HERE / "dense.md"
RESULTS, FIGURE = HERE / "results" / "dense_camvid.json", HERE / "figures" / "dense_camvid.png"
ORDER = ("depthwise_conv", "csp_shift_only", "csp", "mha", "random_permutation", "identity")
WITHOUT = {"constant": "commonest class at each pixel", "forest": "colour, position + forest"}

Run = dict[str, Any]


def reported(runs: list[Run], attention: str) -> list[Run]:
    """The runs of an attention that scored the test set."""
    return [run for run in runs if run["attention"] == attention and "test/mean_iou" in run["metrics"]]


def table(found: dict[str, Any]) -> str:
    """The table of the page: test scores, and validation of each learning rate."""
    runs = found["runs"]
    tried = ", ".join(f"{rate:g}" for rate in sorted({run["lr"] for run in runs}))
    rows = [f"| attention | test mean IoU, % | seeds | accuracy, % | validation at {tried} | parameters |"]
    rows.append("|---|---|---|---|---|---|")
    for attention in ORDER:
        own = reported(runs, attention)
        trials = [run for run in runs if run["attention"] == attention and run not in own]
        rates = ", ".join(_percent(t["metrics"]["val/mean_iou"]) for t in sorted(trials, key=lambda one: one["lr"]))
        ious, accuracies = ([run["metrics"][f"test/{name}"] for run in own] for name in ("mean_iou", "accuracy"))
        each = ", ".join(map(_percent, ious))
        size = f"{own[0]['parameters']:,}"
        rows.append(
            f"| `{attention}` | {_percent(fmean(ious))} | {each} | {_percent(fmean(accuracies))} | {rates} | {size} |"
        )
    for name in WITHOUT.values():
        scores = found["references"][name]
        iou, accuracy = _percent(scores["test/mean_iou"]), _percent(scores["test/accuracy"])
        rows.append(f"| {name} | {iou} | | {accuracy} | | |")
    return "\n".join(rows)


def read() -> dict[str, Any]:
    """The committed verdict, runs and references."""
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found


def page() -> str:
    """The page with verdict and tables between their markers."""
    found = read()
    text = with_section(PAGE.read_text(encoding="utf-8"), "verdict", f"> {found['verdict']}")
    return with_section(with_section(text, "splits", splits(found["runs"])), "camvid", table(found))


def splits(runs: list[Run]) -> str:
    """CSP less each other row on validation and on test, in points with ± over seeds, of the reporting seeds."""
    scores = {
        (name, split): {run["seed"]: 100 * run["metrics"][f"{split}/mean_iou"] for run in reported(runs, name)}
        for name in ORDER
        for split in ("val", "test")
    }
    rows = []
    for name in ORDER:
        if name != "csp":
            pairs = [(scores["csp", split], scores[name, split]) for split in ("val", "test")]
            found = [estimate_over_seeds([ours[seed] - theirs[seed] for seed in ours]) for ours, theirs in pairs]
            cells = [f"{one.mean:+.2f} ± {one.interval().half_width:.2f}" for one in found if one is not None]
            rows.append([f"`{name}`", *cells])
    return markdown_table(["`csp` less", "on validation, points", "on test, points"], *rows)


def draw() -> None:
    """Test mean IoU of every run, and lines for the models without a network."""
    found = read()

    def draw_rows(axes: Axes) -> None:
        for place, attention in enumerate(ORDER):
            ious = [100 * run["metrics"]["test/mean_iou"] for run in reported(found["runs"], attention)]
            axes.plot(ious, [place] * len(ious), "o", color=COLOURS[0], alpha=0.7, markersize=6)
            axes.plot([fmean(ious)], [place], "|", color=INK, markersize=18)
        for entry, label in zip(lines, WITHOUT.values(), strict=True):
            axes.axvline(100 * found["references"][label]["test/mean_iou"], color=entry.get_color(), linestyle="--")
        axes.set_yticks(range(len(ORDER)), ORDER)
        axes.set_ylim(len(ORDER) - 0.4, -0.6)
        axes.set_xlabel("test mean IoU, % (dots: seeds; bars: means; dashed: without a network)")

    lines = [
        Line2D([], [], color=colour, linestyle="--", label=name)
        for name, colour in zip(WITHOUT, COLOURS[1:], strict=False)
    ]
    save_chart(Chart(panels=[draw_rows], legend=lines, size=(6.4, 3.4)), FIGURE)


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"
