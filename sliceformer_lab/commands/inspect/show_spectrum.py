"""Collapse of the tokens at every layer: spectra, ranks, residual and cosine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from rich.table import Table
from torch import Tensor
from torch.nn.functional import pad

from sliceformer_lab.commands.inspect.base import Analysis
from sliceformer_lab.commands.inspect.models import Group, Opened
from sliceformer_lab.commands.inspect.panels import CHECKPOINT_TITLES, caption, draw_grid, looks_of_rows, summary_table
from sliceformer_lab.config.option_types import Count, Natural
from sliceformer_lab.measures.capture import evaluation_mode, record_blocks
from sliceformer_lab.measures.drawing import Chart
from sliceformer_lab.measures.plots import MIN_SINGULAR_VALUE, PLACES_SHOWN
from sliceformer_lab.measures.probe import measure_layers, over_samples
from sliceformer_lab.measures.probe_record import FORMS, MEASURES, PLACES

FORM_TITLES = {"raw": "raw", "mean_removed": "token mean removed", "profile_removed": "nearest q a^T removed"}
MEASURE_TITLES = {
    "stable_rank": "Stable rank",
    "effective_rank": "Effective rank",
    "residual": "Relative rank-1 residual, (1,inf) norm",
    "cosine": "Mean cosine between tokens",
}

Layers = list[list[dict[str, Tensor]]]  # [layer][place][measure] -> (S, F, ...)


class ShowSpectrum(Analysis):
    """Every measure of `measures.probe` at every layer: operator input, operator output and block output.

    Measures each sample's matrix of real tokens, without CLS and padding, in three forms: raw, without the mean token,
    and without the nearest rank-one matrix.
    """

    def __init__(self, *, samples: Count = 64, max_tokens: Count = 256, seed: Natural = 0) -> None:
        self.samples, self.max_tokens, self.seed = samples, max_tokens, seed

    def rows(self, group: Group, opened: Opened) -> Iterator[dict[str, Any]]:
        """A row for every measure of every layer, place and form; a spectrum has one row for each value."""
        layers = self.measured(group, opened)
        for name in MEASURES:
            found = over_samples(layers, name)
            for layer, p, f in np.ndindex(found[0].shape[:3]):
                values = (np.atleast_1d(each[layer, p, f]) for each in found)
                for index, (value, spread, count) in enumerate(zip(*values, strict=True)):
                    if name == "spectrum" and not count:
                        continue  # a value that no sample can have
                    yield {
                        "layer": layer + 1,
                        "place": PLACES[p],
                        "form": FORMS[f],
                        "measure": name,
                        "index": index + 1 if name == "spectrum" else 0,
                        "mean": value,
                        "std_over_samples": spread,
                        "samples": count,
                    }

    def charts(self, group: Group, table: pd.DataFrame) -> list[Chart]:
        """The spectra in each form, and each other measure over depth."""
        spectra = [_draw_spectra(group, table, form) for form in FORMS]
        return spectra + [_draw_depth(group, table, measure) for measure in MEASURE_TITLES]

    def summary(self, group: Group, table: pd.DataFrame) -> Table:
        """The measures of the operator output, means over layers and seeds."""
        shown = [(measure, form) for form in FORMS for measure in MEASURE_TITLES]

        def cells(here: pd.DataFrame) -> list[str]:
            means = here.groupby(["measure", "form"])["mean"].mean().to_dict()
            return [f"{means[measure, form]:.3f}" for measure, form in shown]

        return summary_table(
            f"{group.title}\noperator output, mean over layers, samples and seeds",
            table[(table["place"] == "output") & (table["measure"] != "spectrum")],
            [f"{measure.replace('_', ' ')}\n{form.replace('_', ' ')}" for measure, form in shown],
            cells,
        )

    def measured(self, group: Group, opened: Opened) -> Layers:
        """The measures of every sample, [layer][place][measure] -> (S, F), the spectrum (S, F, R)."""
        blocks, parts = opened.model.encoder.blocks, []
        for batch in group.batches(opened.source, opened.model, self.samples):
            with evaluation_mode(opened.model), record_blocks(blocks) as taken:
                opened.model(batch)
            parts.append(measure_layers(blocks, taken, max_tokens=self.max_tokens, seed=self.seed))
        return [
            [
                {name: _join([seen[name] for seen in batches]) for name in MEASURES}
                for batches in zip(*layer, strict=True)
            ]
            for layer in zip(*parts, strict=True)
        ]


def _join(values: Sequence[Tensor]) -> Tensor:
    """The samples of several batches; shorter spectra end with NaN."""
    longest = max(value.shape[-1] for value in values)
    return torch.cat([pad(value, (0, longest - value.shape[-1]), value=torch.nan) for value in values])


def _draw_spectra(group: Group, table: pd.DataFrame, form: str) -> Chart:
    """Spectra of the operator output: a row for each checkpoint, a column for each layer."""
    chosen = table[(table["measure"] == "spectrum") & (table["place"] == "output") & (table["form"] == form)]
    over_seeds = chosen.groupby(["attention", "checkpoint", "layer", "index"])["mean"].transform("mean")
    lines = chosen.assign(mean=chosen["mean"].where(over_seeds > MIN_SINGULAR_VALUE))
    checkpoints, layers = chosen["checkpoint"].unique(), sorted(chosen["layer"].unique())
    shown = [
        (f"layer {layer}, {CHECKPOINT_TITLES[one]}", lines[(lines["checkpoint"] == one) & (lines["layer"] == layer)])
        for one in checkpoints
        for layer in layers
    ]
    return draw_grid(
        f"{group.task}-spectra-{form}",
        shown,
        looks_of_rows(table),
        columns=len(layers),
        axes_names=("index i of the singular value", ["s_i / s_1"] * len(checkpoints)),
        heading=f"{group.task}: spectra of the operator output, {FORM_TITLES[form]}; {caption(table)}",
        log_rows=len(checkpoints),
    )


def _draw_depth(group: Group, table: pd.DataFrame, measure: str) -> Chart:
    """One measure over depth: a row for each form, a column for each place and checkpoint."""
    chosen = table[table["measure"] == measure].groupby(["form", "checkpoint", "place"])
    columns = [(checkpoint, place) for checkpoint in table["checkpoint"].unique() for place in PLACES]
    titles = [f"{PLACES_SHOWN[place]}\n{CHECKPOINT_TITLES[checkpoint]}" for checkpoint, place in columns]
    return draw_grid(
        f"{group.task}-depth-{measure}",
        [
            (title if form == FORMS[0] else "", chosen.get_group((form, *column)))
            for form in FORMS
            for column, title in zip(columns, titles, strict=True)
        ],
        looks_of_rows(table),
        columns=len(columns),
        axes_names=("layer", [FORM_TITLES[form] for form in FORMS]),
        heading=f"{group.task}: {MEASURE_TITLES[measure].lower()} of the token matrices; {caption(table)}",
    )
