"""Standard deviation of softmax weights over many tokens: Sliceformer's Figure 2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field
from rich.table import Table

from sliceformer_lab.commands.inspect.base import Analysis, Findings
from sliceformer_lab.commands.inspect.models import Study
from sliceformer_lab.commands.inspect.panels import legend_below, panels
from sliceformer_lab.config.option_types import Count, Natural
from sliceformer_lab.measures.plots import COLOURS

LIMIT = np.sqrt(np.e - 1)  # N times the standard deviation for large N and normal scores: 1.3108
AT_ONCE = 2**21  # scores in memory
READING = (
    "the mean weight is 1/N, so relative to it the weights stay uneven: std / mean tends to 1.3108; "
    "the control `mean` has standard deviation 0, which a log axis cannot show"
)


class Oversmoothing(Analysis):
    """Standard deviation of softmax(x) for N tokens with x ~ N(0, 1), compared with its limit sqrt(e - 1) / N.

    The control is a row of a permutation: one weight of 1, others 0, with standard deviation 1 / sqrt(N).
    Source: Sliceformer, Figure 2, whose formula in the text lacks square and root.
    """

    def __init__(
        self,
        *,
        sizes: tuple[Annotated[int, Field(ge=2)], ...] = (10, 100, 1_000, 10_000, 100_000, 1_000_000),
        trials: Count = 100,
        seed: Natural = 0,
    ) -> None:
        if not sizes:
            raise ValueError("sizes=[] has no number of tokens; give some, such as [10,1000]")
        self.sizes, self.trials, self.seed = tuple(sorted(set(sizes))), trials, seed

    def findings(self, study: Study) -> Findings:
        """A row for each trial of each size."""
        del study
        generator = np.random.default_rng(self.seed)
        rows = [
            {"num_tokens": size, "trial": trial, "std": std}
            for size in self.sizes
            for trial, std in enumerate(softmax_stds(generator, size, self.trials))
        ]
        table = pd.DataFrame(rows)
        return Findings(table, {"oversmoothing": _figure(table)}, [_summary(table)], {"reading": READING})


def softmax_stds(generator: np.random.Generator, num_tokens: int, trials: int) -> Iterator[float]:
    """The standard deviation of the weights of each trial, with at most AT_ONCE scores in memory."""
    at_once = max(1, AT_ONCE // num_tokens)
    for done in range(0, trials, at_once):
        scores = generator.standard_normal((min(at_once, trials - done), num_tokens))
        yield from _softmax(scores).std(axis=1, ddof=1).tolist()


def _softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    weights: NDArray[np.float64] = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def _figure(table: pd.DataFrame) -> Figure:
    figure, grid = panels(1, 1, width=8, height=4.8)
    axes = grid[0, 0]
    found = table.groupby("num_tokens")["std"].agg(["mean", "min", "max"])
    sizes = found.index.to_numpy()
    axes.fill_between(sizes, found["min"], found["max"], color=COLOURS[1], alpha=0.25, linewidth=0)
    softmax = {
        "color": COLOURS[1],
        "marker": "s",
        "linestyle": "none",
        "label": "softmax(x), band from least to largest",
    }
    theory = {"color": COLOURS[0], "linestyle": "-", "label": r"limit $\sqrt{e-1}\,/\,N = 1.3108\,/\,N$"}
    control = {"color": "0.35", "linestyle": "--", "label": "a row of a permutation (control)"}
    axes.plot(sizes, LIMIT / sizes, **theory)
    axes.plot(sizes, found["mean"], markersize=5, **softmax)
    axes.plot(sizes, 1 / np.sqrt(sizes), **control)
    axes.set(xscale="log", yscale="log", xlabel="number of tokens N", ylabel="standard deviation of the weights")
    axes.grid(alpha=0.3)
    legend_below(figure, [softmax, theory, control], columns=2)
    trials = table.groupby("num_tokens").size().iloc[0]
    title = f"Weights of a softmax over N normal scores, mean of {trials} trials"
    figure.suptitle("\n".join([title, *READING.split("; ")]), fontsize=9)
    return figure


def _summary(table: pd.DataFrame) -> Table:
    printed = Table(title="standard deviation of softmax(x), x ~ N(0, 1)", title_justify="left")
    for heading in ("N", "mean", "least", "largest", "1.3108 / N"):
        printed.add_column(heading, justify="right")
    for size, stds in table.groupby("num_tokens")["std"]:
        values = (stds.mean(), stds.min(), stds.max(), LIMIT / float(str(size)))
        printed.add_row(f"{size:,}", *(f"{value:.3e}" for value in values))
    return printed
