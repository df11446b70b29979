"""Ranks and residuals of every operator on random tokens: nothing is trained, no run is needed.

usage: python studies/collapse.py [--tokens 64] [--channels 512] [--heads 8] [--layers 8] [--draws 8] [--seed 0]
                                  [--output outputs/studies/collapse]

Writes collapse.csv, collapse.json and the figures collapse_tokens and collapse_plane. About two minutes on one core.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from operators import MIXERS, PERMUTATIONS, build_operators, shown_as
from random_tokens import (
    BRANCH_GAIN,
    SHOWN,
    Mix,
    correlated_tokens,
    distances,
    projected,
    random_layers,
    shown,
    white_tokens,
)
from rich.table import Table
from study_command import run_study
from torch import Tensor
from torch.nn.functional import layer_norm

from sliceformer_lab.attention import Attention, LayerSpec
from sliceformer_lab.commands.inspect.base import Findings
from sliceformer_lab.commands.inspect.panels import legend_below, panels, styles
from sliceformer_lab.measures.probe import measure
from sliceformer_lab.runs.controls import is_control

OPERATORS = (*PERMUTATIONS, "mha", *MIXERS)
TOKENS = "tokens"  # the row of the input tokens; the row of the values V is that of identity
ONE_LAYER = {"random": white_tokens, "correlated": correlated_tokens}
SETTINGS = {
    "random": "independent random tokens",
    "correlated": "correlated tokens with a common mean",
    "layers": f"independent random tokens after random layers with LayerNorm and skip connection (gain {BRANCH_GAIN})",
    "bare_layers": "the same without LayerNorm and skip connection",
}
COLUMNS = {
    "stable_rank": "stable rank",
    "effective_rank": "effective rank",
    "s2_over_s1": "s2/s1",
    "residual": "(1,inf) residual\nof 1 x^T",
    "residual_profile_removed": "(1,inf) residual\nof q a^T",
    "stable_rank_mean_removed": "stable rank,\nmean removed",
    "stable_rank_profile_removed": "stable rank,\nq a^T removed",
    "cosine": "token cosine",
}
PICTURED = (
    "identity",
    "random_permutation",
    "csp_shift_only",
    "csp",
    "csp_random_order",
    "sliceformer",
    "mha",
    "mean",
)
PLANE = (*PICTURED, "csp_reference", "sliceformer_interleave", "depthwise_conv")


@dataclass
class Collapse:
    """Measures of every operator's output on random values, and of the tokens after several random layers.

    One layer is LayerNorm, Gaussian W_V, W_Q, W_K and the operator, on `tokens` x `channels`. The deep stacks have as
    many channels as tokens. Tokens and weights are drawn anew in each draw; the operators' own random choices
    (permutations, directions, filters) are drawn once.
    Raises ValueError if the heads do not divide the channels or the tokens.
    """

    tokens: int = 64  # rows of V
    channels: int = 512  # columns of V
    heads: int = 8  # of softmax attention; must divide tokens and channels
    layers: int = 8  # of the deep stacks
    draws: int = 8  # of tokens and weights, for means and standard deviations
    seed: int = 0  # of the first draw
    _built: dict[tuple[int, int], dict[str, Mix]] = field(default_factory=dict, init=False)  # by channels and layer

    def __post_init__(self) -> None:
        if self.channels % self.heads or self.tokens % self.heads:
            raise ValueError(
                f"heads={self.heads} must divide channels={self.channels} and tokens={self.tokens}, "
                "the width of the deep stacks"
            )

    def findings(self) -> Findings:
        """The table (a row for each setting, operator, layer and measure), two figures and three summaries."""
        drawn = [row for draw in range(self.draws) for row in self._draw(self.seed + draw)]
        keys = ["setting", "attention", "control", "layer", "measure"]
        table = (
            pd.DataFrame(drawn)
            .groupby(keys, sort=False)["value"]
            .agg(mean="mean", std_over_draws=lambda values: values.std(ddof=0), draws="count")
            .reset_index()
        )
        figures = {"collapse_tokens": self._picture(), "collapse_plane": self._plane(table)}
        return Findings(table, figures, [self._summary(table, setting) for setting in (*ONE_LAYER, "layers")], FACTS)

    def _draw(self, seed: int) -> Iterator[dict[str, Any]]:
        for setting in ONE_LAYER:
            for name, x in self.one_layer(setting, seed).items():
                yield from _rows(setting, name, 1, shown(measure(x)))
        for setting, skip in (("layers", True), ("bare_layers", False)):
            for name in OPERATORS:
                for layer, x in enumerate(self.deep(name, seed, skip=skip)):
                    equal, one_profile = distances(x)
                    found = {"distance_equal_tokens": equal, "distance_one_profile": one_profile}
                    yield from _rows(setting, name, layer, shown(measure(x)) | found)

    def one_layer(self, setting: str, seed: int) -> dict[str, Tensor]:
        """One draw of the tokens and each operator's output on their values, (1, N, C) each, by name."""
        generator = torch.Generator().manual_seed(seed)
        tokens = ONE_LAYER[setting](self.tokens, self.channels, generator)[None]
        v, q, k = projected(layer_norm(tokens, tokens.shape[-1:]), generator)
        operators = self._operators(self.channels)
        return {TOKENS: tokens} | {name: operators[name](v, q, k) for name in OPERATORS}

    def deep(self, name: str, seed: int, *, skip: bool) -> list[Tensor]:
        """The tokens before, between and after `layers` random layers of one operator, (1, N, N) each."""
        generator = torch.Generator().manual_seed(seed)
        tokens = white_tokens(self.tokens, self.tokens, generator)[None]
        operators = [self._operators(self.tokens, layer)[name] for layer in range(self.layers)]
        return random_layers(tokens, operators, generator, skip=skip)

    def _operators(self, channels: int, layer: int = 0) -> dict[str, Mix]:
        if (channels, layer) not in self._built:
            spec = LayerSpec(
                dim=channels, num_heads=self.heads, index=layer, depth=self.layers, max_len=self.tokens, project=False
            )
            built = build_operators(OPERATORS, spec, self.seed + layer)
            self._built[channels, layer] = {name: _mix_of(operator) for name, operator in built.items()}
        return self._built[channels, layer]

    def _summary(self, table: pd.DataFrame, setting: str) -> Table:
        ours = table[table["setting"] == setting]
        ours = ours[ours["layer"] == ours["layer"].max()]
        size = f"{self.tokens} x {self.tokens if setting == 'layers' else self.channels}"
        depth = f", {self.layers} layers" if setting == "layers" else ""
        shown_table = Table(
            title=f"{SETTINGS[setting]}, {size}{depth}: mean ± sd over {self.draws} draws of tokens and weights",
            title_justify="left",
        )
        shown_table.add_column("operator")
        for title in COLUMNS.values():
            shown_table.add_column(title, justify="right")
        for name, rows in ours.groupby("attention", sort=False):
            values = rows.set_index("measure")
            shown_table.add_row(
                f"{shown_as(str(name))}{' (control)' if rows['control'].any() else ''}",
                *(f"{values.at[m, 'mean']:.3g} ± {values.at[m, 'std_over_draws']:.1g}" for m in COLUMNS),
            )
        return shown_table

    def _picture(self) -> Figure:
        """Tokens as points in one fixed plane; lower rows are deeper layers."""
        depths = sorted({0, 1, 2, self.layers // 2, self.layers} & set(range(self.layers + 1)))
        figure, grid = panels(len(depths), len(PICTURED), width=1.9, height=1.9)
        generator = torch.Generator().manual_seed(self.seed)
        plane = torch.linalg.qr(white_tokens(self.tokens, 2, generator)).Q
        colours = np.arange(self.tokens)
        for column, name in zip(grid.T, PICTURED, strict=True):
            deep = self.deep(name, self.seed, skip=False)
            limit = float((deep[0][0] @ plane).abs().max()) * 1.25
            for axes, depth in zip(column, depths, strict=True):
                points = (deep[depth][0] @ plane).numpy()
                axes.axhline(0, color="0.85", linewidth=0.7, zorder=0)
                axes.axvline(0, color="0.85", linewidth=0.7, zorder=0)
                axes.scatter(*points.T, c=colours, cmap="viridis", s=10)
                axes.set(xlim=(-limit, limit), ylim=(-limit, limit), xticks=[], yticks=[], aspect="equal")
            column[0].set_title(f"{shown_as(name)}{_control_line(name)}", fontsize=10)
        for axes, depth in zip(grid[:, 0], depths, strict=True):
            axes.set_ylabel("before" if depth == 0 else f"after {depth} layer{'s' if depth > 1 else ''}", fontsize=10)
        figure.suptitle(
            "Two collapses: to one point, $1x^T$ (softmax, mean), and to one line, $q a^T$ (sort). "
            f"{self.tokens} random tokens of {self.tokens} channels,\nseen in one fixed plane, same scale in all "
            "panels, colour: position of the token. Random orthogonal $W_V$ and the operator alone, no skip, no norm, "
            "one draw.\nIt cannot show what trained weights, MLPs and skip connections do.",
            fontsize=11,
        )
        return figure

    def _plane(self, table: pd.DataFrame) -> Figure:
        """Each operator's path over depth, in the plane of the two residuals."""
        figure, grid = panels(1, 2, width=5.6, height=4.8)
        looks = styles(_style_table(PLANE))
        for axes, setting in zip(grid[0], ("bare_layers", "layers"), strict=True):
            for name in PLANE:
                rows = table[(table["setting"] == setting) & (table["attention"] == name)]
                path = rows.pivot(index="layer", columns="measure", values="mean")
                x, y = path["distance_equal_tokens"].to_numpy(), path["distance_one_profile"].to_numpy()
                style = looks[shown_as(name)]
                axes.plot(x, y, **style, markersize=4, linewidth=1.2)
                axes.plot(x[-1], y[-1], color=style["color"], marker=style["marker"], markersize=9)
            axes.fill_between([0, 1.05], [0, 1.05], 1.05, color="0.93", linewidth=0)
            axes.text(0.3, 0.62, "impossible:\n$1x^T$ has rank one too", color="0.45", ha="center", fontsize=9)
            axes.text(0.09, 0.01, "all tokens\nequal", fontsize=9, va="bottom")
            axes.text(1.02, 0.03, "one profile\nin every channel", fontsize=9, ha="right", va="bottom")
            axes.set(xlim=(0, 1.05), ylim=(0, 1.05), aspect="equal")
            axes.set(xlabel="distance from the nearest $1x^T$  (share of $|X|_F$)")
            axes.set_title("operator alone" if setting == "bare_layers" else "with LayerNorm and skip connection")
            axes.grid(alpha=0.3)
        grid[0, 0].set_ylabel("distance from the nearest $q a^T$  (share of $|X|_F$)")
        legend_below(figure, looks.values(), columns=4)
        figure.suptitle(
            f"{self.layers} random layers, one marker each, the last one large; mean of {self.draws} draws. "
            "Nothing is trained.",
            fontsize=11,
        )
        return figure


FACTS = {
    "cannot_show": "what trained weights do; what an MLP adds; anything about accuracy",
    "settings": SETTINGS,
    "measures": {name: " of ".join(where) for name, where in SHOWN.items()},
}


def _rows(setting: str, name: str, layer: int, found: Mapping[str, Tensor]) -> Iterator[dict[str, Any]]:
    where = {"setting": setting, "attention": name, "control": is_control(name), "layer": layer}
    for measured, values in found.items():
        yield where | {"measure": measured, "value": float(values[0])}


def _mix_of(attention: Attention) -> Mix:
    """The operator alone, in evaluation mode and without gradients."""

    def mix(v: Tensor, q: Tensor, k: Tensor) -> Tensor:
        with torch.no_grad():
            return attention.mix(v, q, k).double()  # FNet computes in float32

    return mix


def _control_line(name: str) -> str:
    return "\n(control)" if is_control(name) else "\n"


def _style_table(names: Sequence[str]) -> pd.DataFrame:
    """The table that `styles` reads, for operators without runs."""
    rows = [{"attention": shown_as(name), "control": is_control(name), "run": "random"} for name in names]
    return pd.DataFrame(rows)


if __name__ == "__main__":
    run_study("collapse", Collapse, __doc__)
