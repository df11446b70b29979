"""Ranks and residuals of every operator on random tokens: nothing is trained, no run is needed.

usage: python studies/collapse.py [--tokens 64] [--channels 512] [--heads 8] [--layers 8] [--draws 8] [--seed 0]
                                  [--output outputs/studies/collapse]

Writes collapse.csv, collapse.json and the figures collapse_tokens and collapse_plane. About two minutes on one core.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
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
from sliceformer_lab.measures.drawing import GRADIENT, Chart, Look, legend_of, looks_of
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
        charts = [self._picture(), self._plane(table)]
        return Findings(table, charts, [self._summary(table, setting) for setting in (*ONE_LAYER, "layers")], FACTS)

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

    def _picture(self) -> Chart:
        """Tokens as points in one fixed plane; lower rows are deeper layers."""
        depths = sorted({0, 1, 2, self.layers // 2, self.layers} & set(range(self.layers + 1)))
        plane = torch.linalg.qr(white_tokens(self.tokens, 2, torch.Generator().manual_seed(self.seed))).Q
        points: dict[tuple[str, int], tuple[Any, float]] = {}
        for name in PICTURED:
            deep = [tokens[0] @ plane for tokens in self.deep(name, self.seed, skip=False)]
            limit = float(deep[0].abs().max()) * 1.25
            points |= {(name, depth): (deep[depth].numpy(), limit) for depth in depths}
        heading = (
            "Two collapses: to one point, 1x^T (softmax, mean), and to one line, q a^T (sort). "
            f"{self.tokens} random tokens of {self.tokens} channels, seen in one fixed plane, same scale in all "
            "panels, colour: position of the token. Random orthogonal W_V and the operator alone, no skip, no norm, "
            "one draw.\n"
            "It cannot show what trained weights, MLPs and skip connections do."
        )
        return Chart(
            name="collapse_tokens",
            panels=[partial(_draw_points, points=points, name=name, depth=d) for d in depths for name in PICTURED],
            heading=heading,
            size=(1.9, 2.0),
            columns=len(PICTURED),
            has_outer_labels=True,
        )

    def _plane(self, table: pd.DataFrame) -> Chart:
        """Each operator's path over depth, in the plane of the two residuals."""
        names = {shown_as(name) + " (control)" * is_control(name): name for name in PLANE}
        looks = looks_of({label: is_control(name) for label, name in names.items()})
        by_name = {name: looks[label] for label, name in names.items()}
        titles = {"bare_layers": "operator alone", "layers": "with LayerNorm and skip connection"}
        panels = [
            partial(_draw_paths, table=table[table["setting"] == setting], looks=by_name, title=title)
            for setting, title in titles.items()
        ]
        heading = (
            f"{self.layers} random layers, one marker each, the last one large; mean of {self.draws} draws. "
            "Nothing is trained."
        )
        return Chart(
            name="collapse_plane",
            panels=panels,
            legend=legend_of(looks),
            heading=heading,
            size=(5.6, 4.8),
            has_outer_labels=True,
        )


def _draw_points(axes: Axes, points: Mapping[tuple[str, int], tuple[Any, float]], name: str, depth: int) -> None:
    places, limit = points[name, depth]
    axes.axhline(0, color="0.85", linewidth=0.7, zorder=0)
    axes.axvline(0, color="0.85", linewidth=0.7, zorder=0)
    axes.scatter(places[:, 0], places[:, 1], c=np.arange(len(places)), cmap=GRADIENT, s=10)
    axes.set(xlim=(-limit, limit), ylim=(-limit, limit), xticks=[], yticks=[], aspect="equal")
    axes.set(ylabel="before" if depth == 0 else f"after {depth} layer{'s' if depth > 1 else ''}")
    if depth == 0:
        axes.set_title(f"{shown_as(name)}\n{'(control)' if is_control(name) else ''}")


def _draw_paths(axes: Axes, table: pd.DataFrame, looks: Mapping[str, Look], title: str) -> None:
    for name, look in looks.items():
        path = table[table["attention"] == name].pivot(index="layer", columns="measure", values="mean")
        x, y = path["distance_equal_tokens"].to_numpy(), path["distance_one_profile"].to_numpy()
        axes.plot(x, y, color=look.colour, marker=look.marker, linestyle=look.line, linewidth=1.2)
        axes.plot(x[-1], y[-1], color=look.colour, marker=look.marker, markersize=9)
    axes.fill_between([0, 1.05], [0, 1.05], 1.05, color="0.93", linewidth=0)
    axes.text(0.3, 0.62, "impossible:\n1x^T has rank one too", color="0.45", ha="center")
    axes.text(0.09, 0.01, "all tokens\nequal", va="bottom")
    axes.text(1.02, 0.03, "one profile\nin every channel", ha="right", va="bottom")
    axes.set(xlim=(0, 1.05), ylim=(0, 1.05), aspect="equal", title=title)
    axes.set(xlabel="distance from the nearest 1x^T  (share of |X|_F)")
    axes.set(ylabel="distance from the nearest q a^T  (share of |X|_F)")


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


if __name__ == "__main__":
    run_study("collapse", Collapse, __doc__)
