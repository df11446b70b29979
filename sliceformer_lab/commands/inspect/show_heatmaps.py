"""Heatmaps of operator outputs for one sample, as in CSP's Figure 3 and Sliceformer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.table import Table

from sliceformer_lab.commands.inspect.base import Analysis, Findings
from sliceformer_lab.commands.inspect.models import Group, Opened, Source, Study
from sliceformer_lab.commands.inspect.panels import CHECKPOINT_TITLES, panels, styles
from sliceformer_lab.config.option_types import Count, Natural
from sliceformer_lab.errors import ConfigError
from sliceformer_lab.measures.capture import blocks_of, evaluation_mode, record_blocks

COLOUR_MAP = "RdBu_r"  # safe for colour-blind readers, white at 0


class Heatmaps(Analysis):
    """Operator output of one sample and one head: real tokens, with CLS, by channels.

    Shows the run with the lowest seed of each attention. Each attention has one colour scale for all layers and
    checkpoints.
    """

    def __init__(
        self,
        *,
        layers: tuple[Count, ...] | None = (1, 2, 4, 6),
        sample: Natural = 0,
        head: Natural = 0,
    ) -> None:
        self.layers, self.sample, self.head = layers, sample, head

    def findings(self, study: Study) -> Findings:
        """A row for each token and channel; a figure for each task."""
        tables, figures, summary = [], {}, []
        for group in study.groups:
            rows = [row for opened in study.opened(group, _one_each(group)) for row in self._rows(group, opened)]
            if not rows:
                continue
            table = pd.concat(rows)
            tables.append(table)
            figures[f"{group.name}-heatmaps"] = self._figure(group, table)
            summary.append(_summary(group, table))
        return Findings(pd.concat(tables) if tables else pd.DataFrame(), figures, summary)

    def _rows(self, group: Group, opened: Opened) -> Iterator[pd.DataFrame]:
        for layer, values in self.outputs(group, opened).items():
            tokens, channels = np.indices(values.shape)
            yield pd.DataFrame(
                {
                    "group": group.title,
                    **opened.facts,
                    "layer": layer,
                    "token": tokens.ravel(),
                    "channel": channels.ravel(),
                    "value": values.ravel(),
                }
            )

    def outputs(self, group: Group, opened: Opened) -> dict[int, NDArray[np.float32]]:
        """The matrices (N, D) by layer, counted from 1. Raises ConfigError if the model lacks the layer or head."""
        blocks = blocks_of(opened.model)
        chosen = [layer for layer in self.layers or range(1, len(blocks) + 1) if layer <= len(blocks)]
        if not chosen:
            raise ConfigError(
                f"analysis.layers={list(self.layers or ())}: {opened.source.name} has {len(blocks)} layers"
            )
        batch = group.batches(opened.source, opened.model, self.sample + 1)[-1]
        with evaluation_mode(opened.model), record_blocks(blocks) as taken:
            opened.model(batch)
        row = len(batch) - 1
        return {layer: self._head(blocks[layer - 1], taken[layer - 1], row) for layer in chosen}

    def _head(self, block: Any, seen: dict[str, Any], row: int) -> NDArray[np.float32]:
        width = block.attention.head_dim
        heads = block.attention.spec.num_heads
        if self.head >= heads:
            raise ConfigError(f"analysis.head={self.head}: heads count from 0 and this model has {heads}")
        x = seen["output"][row, : int(seen["lengths"][row])]
        values: NDArray[np.float32] = x[:, self.head * width : (self.head + 1) * width].float().numpy()
        return values

    def _figure(self, group: Group, table: pd.DataFrame) -> Figure:
        attentions, layers = list(table["attention"].unique()), sorted(table["layer"].unique())
        columns = [(checkpoint, layer) for checkpoint in table["checkpoint"].unique() for layer in layers]
        looks = styles(table)
        figure, grid = panels(len(attentions), len(columns), width=1.75, height=1.5, sharey="none", sharex="none")
        for axes_row, attention in zip(grid, attentions, strict=True):
            here = table[table["attention"] == attention]
            limit = float(here["value"].abs().max()) or 1.0
            for axes, (checkpoint, layer) in zip(axes_row, columns, strict=True):
                shown = here[(here["checkpoint"] == checkpoint) & (here["layer"] == layer)]
                axes.set(xticks=[], yticks=[])
                if shown.empty:  # an untrained control, or a model with fewer layers
                    axes.set_facecolor("0.93")
                    continue
                matrix = shown.pivot_table(index="token", columns="channel", values="value").to_numpy()
                image = axes.imshow(
                    matrix, cmap=COLOUR_MAP, vmin=-limit, vmax=limit, aspect="auto", interpolation="none"
                )
            figure.colorbar(image, ax=list(axes_row), fraction=0.02, pad=0.01)
            name = looks[attention]["label"].replace(" (", "\n(")
            axes_row[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9)
        for axes, (checkpoint, layer) in zip(grid[0], columns, strict=True):
            axes.set_title(f"layer {layer}\n{CHECKPOINT_TITLES[checkpoint]}", fontsize=9)
        title = f"operator output of {group.stage} sample {self.sample}, head {self.head}"
        scale = "rows: tokens, columns: channels; one colour scale for each attention; grey: no such model"
        figure.suptitle(f"{group.task}: {title}\n{scale}", fontsize=10)
        return figure


def _one_each(group: Group) -> list[Source]:
    """The source with the lowest seed of every attention."""
    chosen: dict[str, Source] = {}
    for source in group.sources:
        if source.label not in chosen or source.seed < chosen[source.label].seed:
            chosen[source.label] = source
    return list(chosen.values())


def _summary(group: Group, table: pd.DataFrame) -> Table:
    """The standard deviation of the values, over the tokens of a channel and over all."""
    printed = Table(title=f"{group.title}\nplotted values", title_justify="left")
    for heading in ("attention", "weights", "layer", "std over tokens", "std"):
        printed.add_column(heading)
    for (attention, checkpoint, layer), here in table.groupby(["attention", "checkpoint", "layer"], sort=False):
        over_tokens = here.groupby("channel")["value"].std(ddof=0).mean()
        values = (f"{over_tokens:.3f}", f"{here['value'].std(ddof=0):.3f}")
        printed.add_row(str(attention), str(checkpoint), str(layer), *values)
    return printed
