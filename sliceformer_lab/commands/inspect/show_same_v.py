"""Applies every operator to one model's values, to separate the effect of training from that of the operator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table
from torch import Tensor

from sliceformer_lab.attention import Attention, LayerSpec
from sliceformer_lab.attention.mha import MHA
from sliceformer_lab.commands.inspect.base import Analysis, Findings, findings_by_group
from sliceformer_lab.commands.inspect.mixing import Mixed, mixing
from sliceformer_lab.commands.inspect.models import Group, Opened, Study
from sliceformer_lab.commands.inspect.operators import MIXERS, PERMUTATIONS, build_operators, shown_as
from sliceformer_lab.commands.inspect.panels import CHECKPOINT_TITLES
from sliceformer_lab.config.option_types import Count, Natural
from sliceformer_lab.measures.capture import blocks_of, evaluation_mode
from sliceformer_lab.measures.collapse import shown
from sliceformer_lab.measures.probe import measure_samples
from sliceformer_lab.runs.controls import is_control

OPERATORS = (*PERMUTATIONS, *MIXERS)
OWN, SOFTMAX = "own", "mha"  # the model's operator; softmax with the model's queries and keys
PANELS = {
    "stable_rank": "Stable rank",
    "stable_rank_mean_removed": "Stable rank, token mean removed",
    "residual": "(1,inf) residual of $1x^T$",
    "residual_profile_removed": "(1,inf) residual of $qa^T$",
}
FACTS = {
    "cannot_show": (
        "what a model would have learned with another operator: its values were trained for its own operator, and the "
        "inputs of later layers come from its own operator in every column"
    ),
    "own": "the operator that the model was trained with; for untrained controls that of the control",
    "mha": "softmax attention with the model's own queries and keys, so only for runs of mha",
}


class SameV(Analysis):
    """The values V of every layer of a model, put through every operator without trained parameters.

    Rows are models, columns are operators: along a row the operator differs, down a column the training. The forward
    pass itself keeps the model's own operators.
    """

    def __init__(self, *, samples: Count = 16, max_tokens: Count = 256, seed: Natural = 0) -> None:
        self.samples, self.max_tokens, self.seed = samples, max_tokens, seed
        self._operators = cache(self._build)

    def findings(self, study: Study) -> Findings:
        """One table over all tasks, and a figure for each task."""
        rows: list[dict[str, Any]] = []
        for group in study.groups:
            for opened in study.opened(group):
                found = list(self._rows(group, opened))
                if not found:
                    study.left_out[opened.source.name] = f"{opened.source.label} does not mix values by `mix` alone"
                rows += found
        return findings_by_group(study, pd.DataFrame(rows), _figure_and_summary, FACTS)

    def _rows(self, group: Group, opened: Opened) -> Iterator[dict[str, Any]]:
        for (layer, operator), found in self.measured(group, opened).items():
            for name, values in found.items():
                yield {
                    "group": group.title,
                    **opened.facts,
                    "layer": layer + 1,
                    "operator": operator,
                    "measure": name,
                    "mean": float(values.nanmean()),
                    "std_over_samples": float(np.nanstd(values.numpy())),
                    "samples": len(values),
                }

    def measured(self, group: Group, opened: Opened) -> dict[tuple[int, str], dict[str, Tensor]]:
        """The measures of `measures.collapse.SHOWN` by layer and operator, each with a value for every sample (S,)."""
        parts: dict[tuple[int, str], list[dict[str, Tensor]]] = {}
        blocks = blocks_of(opened.model)
        for batch in group.batches(opened.source, opened.model, self.samples):
            with evaluation_mode(opened.model), mixing(blocks) as calls:
                opened.model(batch)
            for layer, call in calls.items():
                for operator, output in self.outputs(call).items():
                    parts.setdefault((layer, operator), []).append(self._measures(call, output))
        return {
            key: {name: torch.cat([part[name] for part in found]) for name in found[0]} for key, found in parts.items()
        }

    def outputs(self, call: Mixed) -> dict[str, Tensor]:
        """The output of every operator for a layer's values, (B, N, H*D) each."""
        spec = call.attention.spec
        width = call.v.shape[2]
        layer = replace(
            spec,
            dim=width,
            head_dim=width // spec.num_heads,
            max_len=max(spec.max_len or 0, call.v.shape[1]),
            rope=False,
            project=False,
        )
        values = call.v.double()
        found = {OWN: call.output}
        with torch.no_grad():
            for name, operator in self._operators(layer).items():
                found[name] = operator.mix(values, padding=call.padding)
        if isinstance(call.attention, MHA):
            found[SOFTMAX] = call.output_of(call.v)
        return found

    def _build(self, layer: LayerSpec) -> dict[str, Attention]:
        return build_operators(OPERATORS, layer, self.seed + layer.index)

    def _measures(self, call: Mixed, output: Tensor) -> dict[str, Tensor]:
        limits = {"max_tokens": self.max_tokens, "seed": self.seed}
        lengths = call.lengths.clamp(max=output.shape[1])
        return shown(measure_samples(output, lengths, num_prefix=call.attention.spec.num_prefix, **limits))


def _figure_and_summary(group: Group, table: pd.DataFrame) -> tuple[dict[str, Figure], Table]:
    figures = {f"same_v_{group.name}": _picture(group, table)}
    return figures, _summary(group, table, "stable_rank_mean_removed")


def _cells(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """A row for each model, a column for each operator: means over layers, samples and seeds."""
    rows = table[table["measure"] == name].copy()
    rows["model"] = [
        f"{attention}{' (control)' if control else ''}, {CHECKPOINT_TITLES[checkpoint]}"
        for attention, control, checkpoint in zip(rows["attention"], rows["control"], rows["checkpoint"], strict=True)
    ]
    cells = rows.pivot_table(index="model", columns="operator", values="mean", sort=False)
    return cells[[name for name in (OWN, *OPERATORS, SOFTMAX) if name in cells.columns]]


def _title(operator: str) -> str:
    return f"{shown_as(operator)}{' (control)' if is_control(operator) else ''}"


def _picture(group: Group, table: pd.DataFrame) -> Figure:
    """A coloured table for each of PANELS."""
    num_rows = len(_cells(table, "residual"))
    figure = Figure(figsize=(17, 2 * (0.3 * num_rows + 1.9) + 0.8), layout="constrained")
    grid = figure.subplots(2, 2, sharey=True)
    for axes, (name, title) in zip(grid.flat, PANELS.items(), strict=True):
        _coloured(axes, _cells(table, name))
        axes.set_title(title, fontsize=10)
    figure.suptitle(
        f"{group.title}\nRows: the model that the values V are from; columns: the operator applied to them. Mean over "
        "layers, samples and seeds.\nIt cannot show what a model would have learned with another operator.",
        fontsize=10,
    )
    return figure


def _coloured(axes: Axes, cells: pd.DataFrame) -> None:
    values = cells.to_numpy()
    low, high = min(0.0, float(np.nanmin(values))), float(np.nanmax(values))
    axes.imshow(values, cmap="cividis", aspect="auto", vmin=low, vmax=high)
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            is_light = value > low + 0.55 * (high - low)
            text = f"{value:.2f}" if value < 10 else f"{value:.0f}"
            axes.text(column, row, text, ha="center", va="center", fontsize=7, color="black" if is_light else "white")
    axes.set_xticks(
        range(len(cells.columns)), [_title(name) for name in cells.columns], rotation=40, ha="right", fontsize=8
    )
    axes.set_yticks(range(len(cells)), list(cells.index), fontsize=8)


def _summary(group: Group, table: pd.DataFrame, name: str) -> Table:
    cells = _cells(table, name)
    shown_table = Table(
        title=f"{group.title}: {PANELS[name]}, mean over layers, samples and seeds", title_justify="left"
    )
    shown_table.add_column("values of", no_wrap=True)
    for operator in cells.columns:
        shown_table.add_column(shown_as(operator), justify="right")
    for model, values in cells.iterrows():
        shown_table.add_row(str(model), *("" if np.isnan(value) else f"{value:.3g}" for value in values))
    return shown_table
