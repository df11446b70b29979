"""A figure of studies/study.md: collapse over depth and accuracy of two operators, softmax and two controls.

`make docs` draws it from results/depth_digits.jsonl: measures of the operator's output in each layer after training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from results import RESULTS, read
from scipy import stats

from sliceformer_lab.runs.files import whole_file

PICTURE = RESULTS.parent / "figures" / "depth.png"
STUDY = "depth_digits"
LOOKS = {  # attention -> its name in the figure, colour and marker; from the best test accuracy down
    "csp": ("CSP", "#0072B2", "o"),
    "random_permutation": ("random\npermutation", "#555555", "s"),
    "sliceformer": ("Sliceformer", "#009E73", "^"),
    "identity": ("identity\n(no mixing)", "#CC79A7", "D"),
    "mha": ("softmax", "#D55E00", "v"),
}


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
