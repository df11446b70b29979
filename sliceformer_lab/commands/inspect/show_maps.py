"""Token maps of a model's operators: sums, rank, sparsity, travelled distance, dependence on the data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from textwrap import fill
from typing import Annotated, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray
from pydantic import Field
from rich.table import Table
from torch import Tensor

from sliceformer_lab.batch import Batch
from sliceformer_lab.commands.inspect.base import Analysis
from sliceformer_lab.commands.inspect.mixing import Mixed, mixing
from sliceformer_lab.commands.inspect.models import Group, Opened, Source, Study
from sliceformer_lab.commands.inspect.panels import (
    CHECKPOINT_TITLES,
    caption,
    lines_over,
    looks_of_rows,
    summary_table,
)
from sliceformer_lab.config.compose import load_option
from sliceformer_lab.config.option_types import Count
from sliceformer_lab.measures.capture import evaluation_mode
from sliceformer_lab.measures.drawing import EMPTY, Chart, Look, Panel, draw_pixels, legend_of
from sliceformer_lab.measures.line_panels import ROW, axis_bounds, line_panel
from sliceformer_lab.measures.maps import (
    apart_on_grid,
    binned,
    column_error,
    density,
    overlap,
    quantile,
    rank_share,
    reads_through,
    row_error,
    spread,
    token_distances,
    tokens_read,
    weighted_distances,
)

SHIFT = "csp_shift_only"  # the control that moves tokens as CSP does, independent of their values
LEVELS = {"q10": 0.1, "median": 0.5, "q90": 0.9}
DISTANCE_BINS = 16  # of the histogram of distances
MAP_TITLE_LETTERS = 30  # of a line above a map
PICTURED_CHANNELS = 2  # channels or heads shown of the first and the last layer
COLUMNS = {
    "row_error": "worst row sum\n- 1",
    "column_error": "worst column\nsum - 1",
    "rank": "rank / N",
    "density": "share of\nnon-zero weights",
    "tokens_read": "tokens read\nby a token",
    "overlap": "equal in two\nsamples",
    "reach_of_layer": "pairs reached\nby one layer",
    "reach_of_all": "pairs reached\nby all layers",
    "distance_mean": "mean distance\n/ (N - 1)",
    "distance_q10": "10 %",
    "distance_median": "median",
    "distance_q90": "90 %",
}
CURVES = {
    "distance_mean": "Mean distance / (N - 1)",
    "overlap": "Equal in two samples",
    "tokens_read": "Tokens read by a token",
    "reach": "Pairs of tokens reached so far",
    "grid_distance_mean": "Mean distance in the grid, patches",
}
BY_CONSTRUCTION = (
    "Every permutation has sums of 1, rank N and a share 1/N of non-zero weights by construction; this says nothing "
    "about the rank of its output."
)
NOT_REACHED = "What all layers reach is unknown, and left out, where one of them has no maps of all channels."
FACTS = {
    "by_construction": BY_CONSTRUCTION,
    "cannot_show": "which moves the model needs; a map alone does not explain a prediction",
    "measures": {
        "rank": "numerical rank of the shown maps over N",
        "tokens_read": "exp of the entropy of a row's weights",
        "reach_of_layer": "share of pairs of tokens (i, j) whose i can receive from j in this layer",
        "reach": "the same through this layer and all before it, up to a layer without maps; both need the maps of all "
        "channels or heads",
        "reach_of_all": "reach of the last layer, if every layer has maps",
        "overlap": "weight that two samples put on the same tokens; for permutations the share of equal entries",
        "distance": "|i - j| over N - 1, weighted by the map, without prefix tokens; grid_: Euclidean, in patches",
    },
}

Picture = dict[tuple[str, int, int], Tensor]  # (attention and checkpoint, layer, channel or head) -> a map (N, N)


class ShowMaps(Analysis):
    """The token-mixing matrices of every layer: sums, rank, sparsity, travelled distances and dependence on data.

    A permutation has one for each channel, softmax attention one for each head; operators without maps are left out.
    Measures at most `channels` of a layer, fewer for long sequences. Adds a shift as a control.
    """

    facts = FACTS
    obstacle = (
        "has no token maps: it mixes channels or padded rows too, is not linear in its values, or its maps do not fit "
        "in memory"
    )

    def __init__(self, *, samples: Annotated[int, Field(ge=2)] = 8, channels: Count = 64) -> None:
        self.samples, self.channels = samples, channels
        self._pictures: dict[str, Picture] = {}  # by the title of a group

    def measurements(self, study: Study) -> pd.DataFrame:
        """A row for every measure and layer of every model, and of an untrained shift."""
        for group in study.groups:
            _add_shift(group)
        return super().measurements(study)

    def rows(self, group: Group, opened: Opened) -> Iterator[dict[str, Any]]:
        """A row for every measure and layer; a histogram has one for each bin."""
        picture = self._pictures.setdefault(group.title, {})
        found = self.measured(group, opened, picture if opened.is_last else {})
        for (layer, name, index), values in found.items():
            yield {
                "layer": layer + 1,
                "measure": name,
                "index": index,
                "mean": float(np.mean(values)),
                "std_over_samples": float(np.std(values)),
                "samples": len(values),
            }

    def charts(self, group: Group, table: pd.DataFrame) -> list[Chart]:
        """Some maps as pictures, and their distances."""
        return [_draw_maps(group, self._pictures[group.title]), _draw_curves(group, table)]

    def summary(self, group: Group, table: pd.DataFrame) -> Table:
        """Means over layers and seeds."""

        def cells(rows: pd.DataFrame) -> list[str]:
            means = rows.groupby("measure")["mean"].mean()
            return [f"{means[name]:.3g}" if name in means.index else "" for name in COLUMNS]

        shown = summary_table(f"{group.title}: maps, mean over layers and seeds", table, COLUMNS.values(), cells)
        shown.caption, shown.caption_justify = f"{BY_CONSTRUCTION} {NOT_REACHED}", "left"
        return shown

    def measured(self, group: Group, opened: Opened, picture: Picture) -> dict[tuple[int, str, int], list[float]]:
        """The values of every measure over samples, by layer, name and bin (0 without a histogram)."""
        found: dict[tuple[int, str, int], list[float]] = defaultdict(list)
        before: dict[int, Tensor] = {}  # the maps of the previous sample
        blocks = opened.model.encoder.blocks
        name = f"{opened.source.label}\n{CHECKPOINT_TITLES[opened.checkpoint]}"
        is_new = all(key[0] != name for key in picture)
        for batch in group.batches(opened.source, opened.model, self.samples):
            for index, calls in _each_sample(blocks, batch, opened.model):
                reached, known = None, 0  # by the first `known` layers, whose maps are all there
                for layer, call in calls.items():
                    ours = call.maps_of(index, self.channels)
                    if ours is None:
                        continue
                    chosen, maps = ours
                    for (measure, place), value in _measure_maps(call, maps).items():
                        found[layer, measure, place].append(value)
                    if is_whole := len(chosen) == call.num_maps:
                        found[layer, "reach_of_layer", 0].append(_compute_share(reads_through(maps)))
                    if is_whole and layer == known:
                        reached, known = reads_through(maps, reached), known + 1
                        found[layer, "reach", 0].append(_compute_share(reached))
                    if layer in before and before[layer].shape == maps.shape:
                        found[layer, "overlap", 0].append(float(overlap(before[layer], maps).mean()))
                    elif is_new and layer not in before and layer in (0, len(blocks) - 1):
                        for one in spread(len(chosen), PICTURED_CHANNELS):
                            picture[name, layer, int(chosen[one])] = maps[one]
                    before[layer] = maps
                if reached is not None and known == len(blocks):
                    found[known - 1, "reach_of_all", 0].append(_compute_share(reached))
        return dict(found)


def _each_sample(blocks: Sequence[Any], batch: Batch, model: Any) -> Iterator[tuple[int, dict[int, Mixed]]]:
    with evaluation_mode(model), mixing(blocks) as calls:
        model(batch)
    if calls:
        for index in range(len(next(iter(calls.values())).v)):
            yield index, calls


def _compute_share(pairs: Tensor) -> float:
    """The share of True among pairs of tokens (N, N)."""
    return float(pairs.double().mean())


def _measure_maps(call: Mixed, maps: Tensor) -> dict[tuple[str, int], float]:
    """The numbers of one sample's maps (M, N, N) by name and bin."""
    spec = call.attention.spec
    moved = maps[:, spec.num_prefix :, spec.num_prefix :]
    num_tokens = moved.shape[1]
    found = {
        ("row_error", 0): float(row_error(maps).amax()),
        ("column_error", 0): float(column_error(maps).amax()),
        ("rank", 0): float(rank_share(maps[spread(len(maps), PICTURED_CHANNELS)]).mean()),
        ("density", 0): float(density(maps).mean()),
        ("tokens_read", 0): float(tokens_read(maps).mean()),
    }
    if num_tokens > 1:
        distances = {"distance": token_distances(num_tokens) / (num_tokens - 1)}
        if spec.grid is not None and num_tokens == spec.grid[0] * spec.grid[1]:
            distances["grid_distance"] = apart_on_grid(spec.grid, spec.token_order)
        for name, between in distances.items():
            values, shares = weighted_distances(moved, between)
            found[f"{name}_mean", 0] = float(values @ shares)
            found |= {(f"{name}_{level}", 0): quantile(values, shares, at) for level, at in LEVELS.items()}
        values, shares = weighted_distances(moved, distances["distance"])
        found |= {
            ("distance_share", i + 1): float(share) for i, share in enumerate(binned(values, shares, DISTANCE_BINS))
        }
    return found


def _add_shift(group: Group) -> None:
    """Add the untrained shift to a group without one."""
    first = group.sources[0]
    if any(source.folder is None for source in group.sources) and all(s.attention != SHIFT for s in group.sources):
        plan = first.plan.with_options({"attention": load_option("attention", SHIFT)})
        group.sources.append(Source(SHIFT, f"{SHIFT} (untrained)", plan))


def _draw_maps(group: Group, picture: Picture) -> Chart:
    """Some maps of the first and last layer of each attention's first run, two attentions in a row."""
    width = 2 * PICTURED_CHANNELS
    panels: list[Panel] = []
    for name in dict.fromkeys(key[0] for key in picture):
        maps = [(layer, number, one) for (of, layer, number), one in picture.items() if of == name]
        panels += [
            partial(_draw_map, matrix=one.numpy(), title=f"{name}\nlayer {layer + 1}, {number}")
            for layer, number, one in maps
        ]
        panels += [EMPTY] * (width - len(maps))
    heading = (
        f"{group.title}\nToken maps of the first sample: row = receiving token, column = source token, number = "
        f"channel or head; darkest = largest weight of a map.\n{BY_CONSTRUCTION}"
    )
    return Chart(name=f"maps_{group.task}", panels=panels, heading=heading, size=(1.7, 2.1), columns=2 * width)


def _draw_map(axes: Axes, matrix: NDArray[np.float64], title: str) -> None:
    draw_pixels(axes, matrix, cmap="Greys", vmin=0)
    lines = [fill(line, MAP_TITLE_LETTERS) for line in title.splitlines()]
    axes.set_title("\n".join(lines), fontsize=7, weight="normal")


def _draw_curves(group: Group, table: pd.DataFrame) -> Chart:
    """The histogram of distances; mean distance, dependence on data and tokens read over the layers."""
    titles = {name: title for name, title in CURVES.items() if (table["measure"] == name).any()}
    looks = looks_of_rows(table)
    panels: list[Panel] = []
    for checkpoint in table["checkpoint"].unique():
        untrained = table["control"] & (table["run"] == "")
        rows = table[(table["checkpoint"] == checkpoint) | untrained]
        panels.append(partial(_draw_distances, rows=rows, looks=looks, title=CHECKPOINT_TITLES[checkpoint]))
        for name, title in titles.items():
            lines = lines_over(rows[rows["measure"] == name], "layer")
            log = name == "tokens_read"
            ends = (-0.03, 1.03) if name in ("overlap", "reach") else axis_bounds(lines["mean"], log)
            panels.append(line_panel(lines, looks, x="layer", title=title, log=log, domain=ends))
    heading = f"{group.title}\nMean over channels; {caption(table)}.\nIt cannot show which moves a prediction needs."
    return Chart(
        name=f"maps_{group.task}_distances",
        panels=panels,
        legend=legend_of(looks),
        heading=heading,
        columns=len(titles) + 1,
    )


def _draw_distances(axes: Axes, rows: pd.DataFrame, looks: Mapping[str, Look], title: str) -> None:
    """The histogram of distances over all layers."""
    for row, shares in lines_over(rows[rows["measure"] == "distance_share"], "index").groupby(ROW, sort=False):
        look = looks[str(row)]
        places = (shares["x"] - 0.5) / DISTANCE_BINS
        axes.plot(places, shares["mean"], color=look.colour, marker=look.marker, linestyle=look.line, markersize=3)
    axes.set(xlabel="|i - j| / (N - 1)", ylim=(0, None), title=f"Distances, all layers\n({title})")
    axes.set_ylabel(f"share of weight (of {DISTANCE_BINS} bins)")
