"""Six attentions on street scenes: the figure, the verdict and the table of studies/dense.md.

python studies/dense_page.py collect FOLDER    collect the runs and the verdict of the finished audit in FOLDER
python studies/dense_page.py                   draw the figure, write verdict and table (`make docs`)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

from marked_sections import with_section
from matplotlib.figure import Figure

from sliceformer_lab.commands.compare.reference_scores import reference_scores
from sliceformer_lab.measures.plots import COLOURS, save_figure
from sliceformer_lab.measures.statistics import estimate_over_seeds
from sliceformer_lab.runs.files import write_json, write_text
from sliceformer_lab.runs.plain_text import markdown_table

HERE = Path(__file__).resolve().parent
PAGE = HERE / "dense.md"
RESULTS, FIGURE = HERE / "results" / "dense_camvid.json", HERE / "figures" / "dense_camvid.png"
ORDER = ("depthwise_conv", "csp_shift_only", "csp", "mha", "random_permutation", "identity")
WITHOUT = {"constant": "commonest class at each pixel", "forest": "colour, position + forest"}

Run = dict[str, Any]


def collect(folder: Path) -> None:
    """Write the verdict, and the facts of all finished runs; those with a reporting seed have test scores."""
    runs, scored = [], None
    for file in sorted(folder.rglob("summary.json")):
        summary = json.loads(file.read_text(encoding="utf-8"))
        if summary["status"] != "ok":
            continue
        metrics = {name: value for name, value in summary["metrics"].items() if not name.endswith("loss")}
        runs.append(
            {
                "attention": summary["attention"],
                "seed": summary["seed"],
                "lr": summary["options"]["optim"]["lr"],
                "metrics": metrics,
                "iou_by_class": summary.get("iou_by_class"),
                "parameters": summary["parameters"],
                "processor_seconds": summary["processor_seconds"],
                "best": summary["best"],
                "sha256": summary["protocol"]["sha256"],
            }
        )
        scored = file.parent if "test/mean_iou" in metrics else scored
    if scored is None:
        sys.exit(f"no run below {folder} scored the test set")
    references = {row["name"]: row["metrics"] for row in reference_scores(scored, 6_000) if "metrics" in row}
    verdict = json.loads((folder / "report" / "results.json").read_text(encoding="utf-8"))["sentence"]
    write_json(RESULTS, {"verdict": verdict, "runs": runs, "references": references})


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


def page(found: dict[str, Any]) -> str:
    """The page with verdict and table between their markers."""
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
            cells = [f"{one.mean:+.2f} ± {one.interval().high - one.mean:.2f}" for one in found if one is not None]
            rows.append([f"`{name}`", *cells])
    return markdown_table(["`csp` less", "on validation, points", "on test, points"], *rows)


def draw(found: dict[str, Any]) -> None:
    """Test mean IoU of every run, and lines for the models without a network."""
    figure = Figure(figsize=(7.2, 3.4), layout="constrained")
    axes = figure.subplots()
    for place, attention in enumerate(reversed(ORDER)):
        ious = [100 * run["metrics"]["test/mean_iou"] for run in reported(found["runs"], attention)]
        axes.plot(ious, [place] * len(ious), "o", color=COLOURS[0], alpha=0.7)
        axes.plot([fmean(ious)], [place], "|", color="black", markersize=18)
    for (name, label), colour in zip(WITHOUT.items(), COLOURS[1:], strict=False):
        axes.axvline(100 * found["references"][label]["test/mean_iou"], color=colour, linestyle="--", label=name)
    axes.set_yticks(range(len(ORDER)), list(reversed(ORDER)))
    axes.set_ylim(-0.6, len(ORDER) - 0.4)
    axes.set_xlabel("test mean IoU, % (dots: seeds; bars: means)")
    axes.legend(title="without a network", frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    axes.grid(alpha=0.3, axis="x")
    save_figure(figure, FIGURE)


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["collect", folder]:
            collect(Path(folder))
        case []:
            found = json.loads(RESULTS.read_text(encoding="utf-8"))
            draw(found)
            write_text(PAGE, page(found))
        case _:
            sys.exit(__doc__)
