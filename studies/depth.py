"""A figure of studies/study.md: collapse over depth and accuracy on digits, of two operators, softmax and two controls.

usage: python studies/depth.py                       draw figures/depth.png from the committed results
       python studies/depth.py collect RUN_FOLDER... write results/depth_digits.jsonl first, from finished runs
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from results import RESULTS, finished_runs, read
from scipy import stats

from sliceformer_lab.measures.probe_record import ProbeRecord
from sliceformer_lab.runs.files import whole_file, write_text

PICTURE = RESULTS.parent / "figures" / "depth.png"
STUDY = "depth_digits"
MEASURES = {  # its name here -> measure and form of the operator's output
    "token_cosine": ("cosine", "raw"),
    "stable_rank": ("stable_rank", "mean_removed"),
}
LOOKS = {  # attention -> its name in the figure, colour and marker; from the best test accuracy down
    "csp": ("CSP", "#0072B2", "o"),
    "random_permutation": ("random\npermutation", "#555555", "s"),
    "sliceformer": ("Sliceformer", "#009E73", "^"),
    "identity": ("identity\n(no mixing)", "#CC79A7", "D"),
    "mha": ("softmax", "#D55E00", "v"),
}


def collect(folders: Iterable[str]) -> None:
    """Write the measures of each layer after training, one line a run. Raises DataError as `finished_runs`."""
    found = []
    for folder, summary in finished_runs(map(Path, folders)):
        record = ProbeRecord.load(folder / "spectrum.npz")
        layers = {
            name: np.round(record.at(measure, "output", form), 5).tolist() for name, (measure, form) in MEASURES.items()
        }
        kept = {key: summary[key] for key in ("task", "attention", "seed", "git_commit")}
        found.append(kept | {"epoch": int(record.epochs[-1]), "samples": len(record.sample_ids)} | layers)
    found.sort(key=lambda run: (list(LOOKS).index(run["attention"]), run["seed"]))
    write_text(RESULTS / f"{STUDY}.jsonl", "".join(json.dumps(run) + "\n" for run in found))


def draw() -> None:
    """Write figures/depth.png: 1,600 pixels wide, made to be read at 800."""
    runs, scores = read(STUDY), read("controls_digits")
    figure = Figure(figsize=(8, 3.1), layout="constrained")
    cosine, rank, accuracy = figure.subplots(1, 3, width_ratios=(1, 1, 1.15))
    _over_layers(cosine, runs, "token_cosine")
    cosine.set_title("Cosine between tokens", fontsize=10)
    _over_layers(rank, runs, "stable_rank")
    rank.set_title("Stable rank, mean removed", fontsize=10)
    for place, (name, (label, colour, marker)) in enumerate(LOOKS.items()):
        values = np.array([100 * run["metrics"]["test/accuracy"] for run in scores if run["attention"] == name])
        accuracy.errorbar(
            values.mean(), place, xerr=_half(values), color=colour, marker=marker, markersize=6, capsize=3
        )
        accuracy.text(93.2, place, label, color=colour, va="center", ha="right", fontsize=10, linespacing=1.05)
    accuracy.set(xlim=(93.6, 100), ylim=(len(LOOKS) - 0.5, -0.5), yticks=[])
    accuracy.set_title("Test accuracy, %", fontsize=10)
    for axes in (cosine, rank, accuracy):
        axes.tick_params(labelsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    with whole_file(PICTURE) as unfinished:
        figure.savefig(unfinished, format="png", dpi=200)


def _over_layers(axes: Axes, runs: Sequence[Mapping[str, Any]], measure: str) -> None:
    """Mean over seeds with its interval, by layer; one line an attention."""
    for name, (_, colour, marker) in LOOKS.items():
        values = np.array([run[measure] for run in runs if run["attention"] == name])  # (seeds, L)
        layers = np.arange(1, values.shape[1] + 1)
        mean, half = values.mean(0), _half(values)
        axes.plot(layers, mean, color=colour, marker=marker, markersize=5, linewidth=1.6)
        axes.fill_between(layers, mean - half, mean + half, color=colour, alpha=0.18, linewidth=0)
    axes.set_xticks(layers)
    axes.set_xlabel("layer", fontsize=9)


def _half(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Half of Student's 95 % interval over the first axis."""
    factor = stats.t.ppf(0.975, len(values) - 1) / len(values) ** 0.5
    half: NDArray[np.float64] = factor * values.std(axis=0, ddof=1)
    return half


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["collect", *folders] if folders:
            collect(folders)
        case []:
            pass
        case _:
            sys.exit(__doc__)
    draw()
