"""A figure of studies/study.md: collapse over depth and accuracy of two operators, softmax and two controls.

`make docs` draws it from results/depth_digits.jsonl: measures of the operator's output in each layer after training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from results import RESULTS, read

from sliceformer_lab.measures.drawing import Chart, Look, legend_of, save_chart
from sliceformer_lab.measures.line_panels import ROW, line_panel, seed_means
from sliceformer_lab.measures.statistics import estimate_over_seeds

PICTURE = RESULTS.parent / "figures" / "depth.png"
STUDY = "depth_digits"
LOOKS = {  # attention -> its name in the figure and its look; from the best test accuracy down
    "csp": ("CSP", Look("#0072B2", "o")),
    "random_permutation": ("random permutation", Look("#555555", "s")),
    "sliceformer": ("Sliceformer", Look("#009E73", "^")),
    "identity": ("identity (no mixing)", Look("#CC79A7", "D")),
    "mha": ("softmax", Look("#D55E00", "v")),
}


def draw() -> None:
    """Write figures/depth.png."""
    runs, scores, looks = read(STUDY), read("controls_digits"), dict(LOOKS.values())
    panels = [
        line_panel(_over_layers(runs, measure), looks, x="layer", title=title)
        for measure, title in {
            "token_cosine": "Cosine between tokens",
            "stable_rank": "Stable rank, mean removed",
        }.items()
    ]

    def draw_accuracies(axes: Axes) -> None:
        for place, (name, (_, look)) in enumerate(LOOKS.items()):
            accuracies = [100 * run["metrics"]["test/accuracy"] for run in scores if run["attention"] == name]
            if (estimate := estimate_over_seeds(accuracies)) is not None:  # of two seeds or more
                interval = estimate.interval()
                axes.plot([interval.low, interval.high], [place, place], color=look.colour)
            axes.plot(np.mean(accuracies), place, color=look.colour, marker=look.marker, markersize=6)
        axes.set(xlim=(93.6, 100), ylim=(len(LOOKS) - 0.5, -0.5), yticks=[], title="Test accuracy, %")

    save_chart(Chart(panels=[*panels, draw_accuracies], legend=legend_of(looks)), PICTURE)


def _over_layers(runs: Sequence[Mapping[str, Any]], measure: str) -> pd.DataFrame:
    """Mean over seeds with its interval, by layer and attention."""
    points = [
        (LOOKS[run["attention"]][0], layer, value)
        for run in runs
        if run["attention"] in LOOKS
        for layer, value in enumerate(run[measure], start=1)
    ]
    return seed_means(pd.DataFrame(points, columns=[ROW, "x", "value"]), [ROW, "x"])
