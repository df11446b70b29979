"""The distance between grouped Sinkhorn attention and CSP as the temperature falls (Theorem 2 of the CSP paper).

usage: python studies/theorem2.py [--tokens 64] [--channels 8] [--group-sizes 2 8 64] [--taus 3 1 0.3 ...]
                                  [--iterations 10 100 1000] [--draws 3] [--seed 0] [--output outputs/studies/theorem2]

Writes theorem2.csv, theorem2.json and the figure theorem2. About a minute on one core; needs no runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from grouped_sinkhorn import grouped_sinkhorn
from matplotlib.figure import Figure
from rich.table import Table
from study_command import run_study
from torch import Tensor

from sliceformer_lab.attention import LayerSpec, build_layer
from sliceformer_lab.commands.inspect.base import Findings
from sliceformer_lab.config.compose import load_option
from sliceformer_lab.measures.plots import COLOURS, MARKERS

VALUES = {
    "spaced": "evenly spaced values, the same in every channel",
    "normal": "normal values, some of them nearly equal",
}
CONTROLS = {
    "group mean": "its limit at high temperature",
    "not aligned": "csp with reference=none",
    "identity": "nothing moved",
}
SINKHORN = "sinkhorn"
LINES = ("-", "--", ":", "-.")
CLOSE = 0.01  # relative; below it, and falling, the limit counts as reached
FACTS = {
    "error": "Frobenius norm of the difference from csp with reference=channel0 and shift=none, over csp's own",
    "cannot_show": (
        "anything about training: no gradient is taken; and values that are exactly equal, which the theorem leaves out"
    ),
    "values": VALUES,
    "controls": CONTROLS,
}


@dataclass
class Theorem2:
    """The relative distance of grouped Sinkhorn attention from csp with reference=channel0, against temperature.

    Raises ValueError if a list is empty or a group size does not divide the tokens.
    """

    tokens: int = 64
    channels: int = 8  # the first gives the order
    group_sizes: tuple[int, ...] = (2, 8, 64)  # tokens in a group; each must divide `tokens`
    taus: tuple[float, ...] = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003)  # temperatures
    iterations: tuple[int, ...] = (10, 100, 1000)  # of the normalisation of rows and columns
    draws: int = 3
    seed: int = 0  # of the first draw

    def __post_init__(self) -> None:
        if not (self.group_sizes and self.taus and self.iterations):
            raise ValueError("group_sizes, taus and iterations need at least one number each")
        for size in self.group_sizes:
            if self.tokens % size:
                raise ValueError(f"group_sizes: {size} does not divide tokens={self.tokens}")
        self.group_sizes, self.iterations = tuple(sorted(self.group_sizes)), tuple(sorted(self.iterations))
        self.taus = tuple(sorted(self.taus, reverse=True))
        self._options = load_option("attention", "csp")

    def findings(self) -> Findings:
        """The table (a row for each kind of values, group size, operator and setting), a figure and a verdict each."""
        rows = [row for draw in range(self.draws) for values in VALUES for row in self._rows(values, self.seed + draw)]
        keys = ["values", "group_size", "operator", "tau", "iterations"]
        table = (
            pd.DataFrame(rows)
            .groupby(keys, sort=False, dropna=False)["error"]
            .agg(mean="mean", std_over_draws=lambda errors: errors.std(ddof=0), draws="count")
            .reset_index()
        )
        verdicts = {
            f"{values}, groups of {size}": self.verdict(table, values, size)
            for values in VALUES
            for size in self.group_sizes
        }
        return Findings(
            table, {"theorem2": self._picture(table)}, [self._summary(table, verdicts)], FACTS | {"verdicts": verdicts}
        )

    def draw(self, values: str, seed: int) -> Tensor:
        """One draw of values (1, N, C) in float64."""
        generator = torch.Generator().manual_seed(seed)
        shape = (1, self.tokens, self.channels)
        if values == "normal":
            return torch.randn(shape, generator=generator, dtype=torch.float64)
        order = torch.rand(shape, generator=generator).argsort(dim=1)
        return torch.linspace(-2, 2, self.tokens, dtype=torch.float64)[order]

    def _rows(self, values: str, seed: int) -> Iterator[dict[str, Any]]:
        v = self.draw(values, seed)
        for size in self.group_sizes:
            limit = self._csp(size, "channel0", v)
            groups = torch.unflatten(v, 1, (-1, size))
            controls = {
                "group mean": groups.mean(2, keepdim=True).expand_as(groups).flatten(1, 2),
                "not aligned": self._csp(size, "none", v),
                "identity": v,
            }
            where = {"values": values, "group_size": size}
            for name, output in controls.items():
                yield where | {"operator": name, "tau": None, "iterations": None, "error": _error(output, limit)}
            for tau in self.taus:
                for iterations in self.iterations:
                    output = grouped_sinkhorn(v, group_size=size, tau=tau, iterations=iterations)
                    setting = {"operator": SINKHORN, "tau": tau, "iterations": iterations}
                    yield where | setting | {"error": _error(output, limit)}

    def _csp(self, group_size: int, reference: str, v: Tensor) -> Tensor:
        options = self._options | {"shift": "none", "group_size": group_size, "reference": reference}
        spec = LayerSpec(dim=self.channels, num_heads=1, max_len=self.tokens, project=False)
        return build_layer(options, spec).mix(v)

    def verdict(self, table: pd.DataFrame, values: str, group_size: int) -> str:
        """A sentence: does the error fall with every lower temperature and end below CLOSE?"""
        errors = _curve(table, values, group_size, self.iterations[-1])
        falls = bool((np.diff(errors) < 0).all())
        if falls and errors[-1] < CLOSE:
            return f"converges: {errors[-1]:.2g} at tau={self.taus[-1]:g}"
        if falls:
            return f"still falling: {errors[-1]:.2g} at tau={self.taus[-1]:g}"
        best = int(errors.argmin())
        fallen = f"falls to {errors[best]:.2g} at tau={self.taus[best]:g}, then rises"
        return f"{fallen}: {self.iterations[-1]} iterations are too few"

    def _picture(self, table: pd.DataFrame) -> Figure:
        """Error against temperature, a panel for each kind of values and each group size."""
        figure = Figure(figsize=(3.6 * len(self.group_sizes) + 1, 7.4), layout="constrained")
        grid = figure.subplots(len(VALUES), len(self.group_sizes), squeeze=False, sharex=True, sharey=True)
        for axes_row, values in zip(grid, VALUES, strict=True):
            for axes, size in zip(axes_row, self.group_sizes, strict=True):
                for iterations, colour, marker in zip(self.iterations, COLOURS * 9, MARKERS * 9, strict=False):
                    errors = _curve(table, values, size, iterations)
                    label = f"Sinkhorn, {iterations} iterations"
                    axes.loglog(self.taus, errors, color=colour, marker=marker, markersize=4, label=label)
                for name, dashes in zip(CONTROLS, LINES[1:], strict=True):
                    row = table[
                        (table["values"] == values) & (table["group_size"] == size) & (table["operator"] == name)
                    ]
                    axes.axhline(
                        row["mean"].item(), color="0.45", linestyle=dashes, linewidth=1, label=f"{name} (control)"
                    )
                axes.set_title(f"{values} values, groups of {size}", fontsize=10)
                axes.grid(alpha=0.3)
        grid[0, 0].invert_xaxis()  # shared: the temperature falls to the right
        for axes in grid[-1]:
            axes.set_xlabel("temperature tau, falling")
        for axes in grid[:, 0]:
            axes.set_ylabel("relative distance from CSP channel0")
        figure.legend(
            *grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=9
        )
        figure.suptitle(
            f"Grouped Sinkhorn attention against CSP with reference=channel0, {self.tokens} tokens, {self.channels} "
            f"channels, mean of {self.draws} draws.\nIt cannot show what training would do; no gradient is taken.",
            fontsize=10,
        )
        return figure

    def _summary(self, table: pd.DataFrame, verdicts: dict[str, str]) -> Table:
        shown = Table(
            title=f"Distance from CSP channel0 after {self.iterations[-1]} iterations, mean of {self.draws} draws",
            title_justify="left",
        )
        for title in ("values, group size", *(f"tau {tau:g}" for tau in self.taus), *CONTROLS, "verdict"):
            shown.add_column(title, justify="left" if title in ("values, group size", "verdict") else "right")
        for values in VALUES:
            for size in self.group_sizes:
                ours = table[(table["values"] == values) & (table["group_size"] == size)].set_index("operator")["mean"]
                errors = [*_curve(table, values, size, self.iterations[-1]), *(ours[name] for name in CONTROLS)]
                name = f"{values}, groups of {size}"
                shown.add_row(name, *(f"{error:.2g}" for error in errors), verdicts[name])
        return shown


def _curve(table: pd.DataFrame, values: str, group_size: int, iterations: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Errors by falling temperature."""
    rows = table[(table["values"] == values) & (table["group_size"] == group_size) & (table["operator"] == SINKHORN)]
    return rows[rows["iterations"] == iterations]["mean"].to_numpy(dtype=np.float64)


def _error(output: Tensor, limit: Tensor) -> float:
    """Relative Frobenius distance without channel 0, which both leave unchanged."""
    others: Sequence[Tensor] = [x[..., 1:].double() for x in (output, limit)]
    return float(torch.linalg.vector_norm(others[0] - others[1]) / torch.linalg.vector_norm(others[1]))


if __name__ == "__main__":
    run_study("theorem2", Theorem2, __doc__)
