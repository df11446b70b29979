"""Collapse of the tokens at every layer: spectra, ranks, residual and cosine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from rich.table import Table
from torch import Tensor
from torch.nn.functional import pad

from sliceformer_lab.commands.inspect.base import Analysis, Findings, findings_by_group
from sliceformer_lab.commands.inspect.models import Group, Opened, Study
from sliceformer_lab.commands.inspect.panels import (
    CHECKPOINT_TITLES,
    caption,
    legend_below,
    line_with_band,
    over_runs,
    panels,
    styles,
    whole_numbers,
)
from sliceformer_lab.config.option_types import Count, Natural
from sliceformer_lab.measures.capture import blocks_of, evaluation_mode, record_blocks
from sliceformer_lab.measures.plots import MIN_SINGULAR_VALUE, PLACES_SHOWN
from sliceformer_lab.measures.probe import mean_and_std, measure_places
from sliceformer_lab.measures.probe_record import FORMS, MEASURES, PLACES

FORM_TITLES = {"raw": "raw", "mean_removed": "token mean removed", "profile_removed": "nearest $q a^T$ removed"}
MEASURE_TITLES = {
    "stable_rank": "Stable rank",
    "effective_rank": "Effective rank",
    "residual": "Relative rank-1 residual, (1,inf) norm",
    "cosine": "Mean cosine between tokens",
}

Layers = list[list[dict[str, Tensor]]]  # [layer][place][measure] -> (S, F, ...)


class Spectrum(Analysis):
    """Every measure of `measures.probe` at every layer: operator input, operator output and block output.

    Measures each sample's matrix of real tokens, without CLS and padding, in three forms: raw, without the mean token,
    and without the nearest rank-one matrix.
    """

    def __init__(self, *, samples: Count = 64, max_tokens: Count = 256, seed: Natural = 0) -> None:
        self.samples, self.max_tokens, self.seed = samples, max_tokens, seed

    def findings(self, study: Study) -> Findings:
        """One table over all tasks, and figures for each task."""
        return findings_by_group(
            study, self.measurements(study), lambda group, rows: (_figures(group, rows), _summary(group, rows))
        )

    def measurements(self, study: Study) -> pd.DataFrame:
        """A row for every measure of every model, layer, place and form; a spectrum has one row for each value."""
        rows = [row for group in study.groups for opened in study.opened(group) for row in self._rows(group, opened)]
        return pd.DataFrame(rows)

    def _rows(self, group: Group, opened: Opened) -> Iterator[dict[str, Any]]:
        layers = self.measured(group, opened)
        stats = {name: mean_and_std(layers, name) for name in MEASURES}
        count = len(layers[0][0]["cosine"])
        for layer in range(len(layers)):
            where = {"group": group.title, **opened.facts, "layer": layer + 1}
            for p, place in enumerate(PLACES):
                for f, form in enumerate(FORMS):
                    for name, (mean, std) in stats.items():
                        values = np.atleast_1d(mean[layer, p, f]), np.atleast_1d(std[layer, p, f])
                        for index, (value, spread) in enumerate(zip(*values, strict=True)):
                            yield where | {
                                "place": place,
                                "form": form,
                                "measure": name,
                                "index": index + 1 if name == "spectrum" else 0,
                                "mean": value,
                                "std_over_samples": spread,
                                "samples": count,
                            }

    def measured(self, group: Group, opened: Opened) -> Layers:
        """The measures of every sample, [layer][place][measure] -> (S, F), the spectrum (S, F, R)."""
        blocks = blocks_of(opened.model)
        parts = []
        for batch in group.batches(opened.source, opened.model, self.samples):
            with evaluation_mode(opened.model), record_blocks(blocks) as taken:
                opened.model(batch)
            parts.append(
                [
                    measure_places(
                        seen,
                        num_prefix=block.attention.spec.num_prefix,
                        max_tokens=self.max_tokens,
                        seed=self.seed,
                    )
                    for block, seen in zip(blocks, taken, strict=True)
                ]
            )
        return _joined(parts)


def _joined(parts: Sequence[Layers]) -> Layers:
    """The samples of several batches, concatenated; shorter spectra are padded with NaN."""
    first = parts[0]
    return [
        [
            {name: _cat([part[layer][place][name] for part in parts]) for name in MEASURES}
            for place in range(len(PLACES))
        ]
        for layer in range(len(first))
    ]


def _cat(values: Sequence[Tensor]) -> Tensor:
    longest = max(value.shape[-1] for value in values)
    return torch.cat([pad(value, (0, longest - value.shape[-1]), value=torch.nan) for value in values])


def _figures(group: Group, table: pd.DataFrame) -> dict[str, Figure]:
    spectra = {f"{group.name}-spectra-{form}": _spectra(group, table, form) for form in FORMS}
    return spectra | {f"{group.name}-depth-{measure}": _depth(group, table, measure) for measure in MEASURE_TITLES}


def _spectra(group: Group, table: pd.DataFrame, form: str) -> Figure:
    """Spectra of the operator output: a row for each checkpoint, a column for each layer."""
    chosen = table[(table["measure"] == "spectrum") & (table["place"] == "output") & (table["form"] == form)]
    checkpoints, layers = chosen["checkpoint"].unique(), sorted(chosen["layer"].unique())
    looks = styles(table)
    figure, grid = panels(len(checkpoints), len(layers), sharey="all")
    for (row, checkpoint), (column, layer) in (
        (place, other) for place in enumerate(checkpoints) for other in enumerate(layers)
    ):
        axes = grid[row, column]
        here = chosen[(chosen["checkpoint"] == checkpoint) & (chosen["layer"] == layer)]
        for attention, whole in over_runs(here, ["index"]):
            line = whole[whole["mean"] > MIN_SINGULAR_VALUE]
            style = looks[attention] | {"markevery": max(1, len(line) // 8)}
            low = line["spread"].where(line["spread"] < line["mean"])  # a log axis cannot show values below 0
            line_with_band(axes, line["index"].to_numpy(), line["mean"].to_numpy(), low.to_numpy(), style)
        axes.set(yscale="log", title=f"layer {layer}, {CHECKPOINT_TITLES[checkpoint]}")
        axes.grid(alpha=0.3)
        whole_numbers(axes)
    for axes in grid[-1]:
        axes.set_xlabel("index i of the singular value")
    for axes in grid[:, 0]:
        axes.set_ylabel("$s_i / s_1$")
    legend_below(figure, [looks[attention] for attention in chosen["attention"].unique()])
    figure.suptitle(f"{group.task}: spectra of the operator output, {FORM_TITLES[form]}; {caption(table)}", fontsize=11)
    return figure


def _depth(group: Group, table: pd.DataFrame, measure: str) -> Figure:
    """One measure over depth: a row for each form, a column for each place and checkpoint."""
    chosen = table[table["measure"] == measure]
    columns = [(checkpoint, place) for checkpoint in chosen["checkpoint"].unique() for place in PLACES]
    looks = styles(table)
    figure, grid = panels(len(FORMS), len(columns))
    for (row, form), (column, (checkpoint, place)) in (
        (left, right) for left in enumerate(FORMS) for right in enumerate(columns)
    ):
        axes = grid[row, column]
        here = chosen[(chosen["checkpoint"] == checkpoint) & (chosen["place"] == place) & (chosen["form"] == form)]
        for attention, line in over_runs(here, ["layer"]):
            line_with_band(
                axes,
                line["layer"].to_numpy(),
                line["mean"].to_numpy(),
                line["spread"].to_numpy(),
                looks[attention],
            )
        if row == 0:
            axes.set_title(f"{PLACES_SHOWN[place]}\n{CHECKPOINT_TITLES[checkpoint]}", fontsize=10)
        axes.grid(alpha=0.3)
        whole_numbers(axes)
    for axes in grid[-1]:
        axes.set_xlabel("layer")
    for axes, form in zip(grid[:, 0], FORMS, strict=True):
        axes.set_ylabel(FORM_TITLES[form])
    legend_below(figure, [looks[attention] for attention in chosen["attention"].unique()])
    figure.suptitle(
        f"{group.task}: {MEASURE_TITLES[measure].lower()} of the token matrices; {caption(table)}", fontsize=11
    )
    return figure


def _summary(group: Group, table: pd.DataFrame) -> Table:
    """The measures of the operator output, means over layers and seeds."""
    chosen = table[(table["place"] == "output") & (table["measure"] != "spectrum")]
    shown = [(measure, form) for measure in MEASURE_TITLES for form in FORMS]
    printed = Table(title=f"{group.title}\noperator output, mean over layers, samples and seeds", title_justify="left")
    for heading in ("attention", "weights", "seeds"):
        printed.add_column(heading)
    for measure, form in shown:
        printed.add_column(f"{measure.replace('_', ' ')}\n{form.replace('_', ' ')}", justify="right")
    for (attention, checkpoint), here in chosen.groupby(["attention", "checkpoint"], sort=False):
        means = here.groupby(["measure", "form"])["mean"].mean().to_dict()
        values = [f"{means[measure, form]:.3f}" for measure, form in shown]
        control = " (control)" if here["control"].any() else ""
        printed.add_row(f"{attention}{control}", str(checkpoint), str(here["seed"].nunique()), *values)
    return printed
