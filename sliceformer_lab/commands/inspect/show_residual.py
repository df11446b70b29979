"""The rank-one residual of the tokens along depth, with parts of the blocks switched off."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from rich.table import Table
from torch import Tensor

from sliceformer_lab.attention.base import Attention
from sliceformer_lab.attention.csp_causal import CSPCausal
from sliceformer_lab.attention.identity import Identity
from sliceformer_lab.attention.permutation import PermutationAttention
from sliceformer_lab.attention.random_permutation import RandomPermutation
from sliceformer_lab.commands.inspect.base import Analysis
from sliceformer_lab.commands.inspect.models import Group, Opened
from sliceformer_lab.commands.inspect.panels import (
    CHECKPOINT_TITLES,
    caption,
    draw_grid,
    looks_of_rows,
    summary_table,
)
from sliceformer_lab.commands.inspect.parts import ALL_PARTS, WHOLE, Parts, can_be_taken_apart, only_parts
from sliceformer_lab.config.option_types import Count
from sliceformer_lab.measures.capture import evaluation_mode, record_blocks
from sliceformer_lab.measures.drawing import Chart, Look
from sliceformer_lab.measures.line_panels import ROW
from sliceformer_lab.measures.residual import (
    centre_of,
    csp_bound_factor,
    norm_1,
    norm_1_inf,
    norm_inf,
    relative_residual,
    residual,
)

ALONE = Parts(skip=False, mlp=False, norm=False)
MAX_PROGRAM_ENTRIES = 2048  # entries of a matrix whose best centre takes seconds to find
SHOWN_FROM = 1e-8  # float32 rounding; smaller values are plotted at this value
CAVEAT = (
    "the bound holds for operators that permute within channels, without biases, skip connections and norms; "
    "it bounds growth from above, and does not exclude a collapse towards a rank-one matrix other than 1x^T"
)


class ShowResidual(Analysis):
    """The relative residual about the mean token, of all real tokens, with CLS, after every block.

    Measured with every combination of skip connections, MLP and norms (`parts.only`). For the attention alone, also
    measures the growth of the residual against the bound of CSP's Theorem 1, whose factor for a layer is
    sqrt(C) |W_V|_1 times the (1,inf)-norm of the output projection.
    """

    facts: ClassVar = {"caveat": CAVEAT}

    def __init__(self, *, samples: Count = 16, exact_samples: Count = 1) -> None:
        self.samples, self.exact_samples = samples, exact_samples

    def rows(self, group: Group, opened: Opened) -> Iterator[dict[str, Any]]:
        """A row for each layer, measure and combination of parts."""
        blocks = opened.model.encoder.blocks
        for parts in ALL_PARTS if can_be_taken_apart(blocks) else [WHOLE]:
            with only_parts(blocks, parts):
                samples = list(self._streams(group, opened))
                measured = {"relative_residual": [[float(relative_residual(x)) for x in stream] for stream in samples]}
                if parts == ALONE:
                    measured["growth"] = [_measure_growth(stream) for stream in samples[: self.exact_samples]]
                    if all(_is_permutation(block.attention) for block in blocks):
                        measured["bound"] = [bound_factors(blocks)]
            for measure, values in measured.items():
                for layer, of_samples in enumerate(np.array(values).T):
                    yield {
                        **asdict(parts),
                        "layer": layer,
                        "measure": measure,
                        "mean": of_samples.mean(),
                        "std_over_samples": of_samples.std(),
                        "samples": len(of_samples),
                    }

    def charts(self, group: Group, table: pd.DataFrame) -> list[Chart]:
        """A chart for each checkpoint, and one of the bound."""
        found = [_draw_depth(group, table, checkpoint) for checkpoint in table["checkpoint"].unique()]
        return [*found, _draw_bound(group, table)] if (table["measure"] == "bound").any() else found

    def summary(self, group: Group, table: pd.DataFrame) -> Table:
        """The relative residual after the last block, for every combination of parts."""
        last = table[(table["layer"] == table["layer"].max()) & (table["measure"] == "relative_residual")]
        shown = [parts for parts in ALL_PARTS if len(_rows_of(last, parts))]
        return summary_table(
            f"{group.title}\nrelative residual after the last block",
            last,
            ["whole model" if parts.is_whole else str(parts).replace(" + ", "\n+ ") for parts in shown],
            lambda here: [f"{_rows_of(here, parts)['mean'].mean():.2g}" for parts in shown],
        )

    def _streams(self, group: Group, opened: Opened) -> Iterator[list[Tensor]]:
        """For every sample, its real tokens (n, C) before the first block and after each block."""
        blocks = opened.model.encoder.blocks
        for batch in group.batches(opened.source, opened.model, self.samples):
            with evaluation_mode(opened.model), record_blocks(blocks) as taken:
                opened.model(batch)
            for row, length in enumerate(taken[0]["lengths"].tolist()):
                stream = [taken[0]["before"], *(seen["stream"] for seen in taken)]
                yield [x[row, :length] for x in stream]


def _is_permutation(attention: Attention) -> bool:
    """Whether an attention moves values within a channel and loses none, as Theorem 1 requires.

    One that looks back only has zeros, or a value twice, in place of what would come from later tokens.
    """
    if isinstance(attention, RandomPermutation):
        return not attention.spec.causal
    return isinstance(attention, PermutationAttention | Identity) and not isinstance(attention, CSPCausal)


def bound_factors(blocks: Sequence[Any]) -> list[float]:
    """Upper bounds on the growth of the residual after 0, 1, ... layers of attention alone (CSP, Theorem 1).

    The output projection counts as the function between the layers: |Y W|_{1,inf} <= |W|_{1,inf} |Y|_{1,inf}.
    """
    values = [block.attention.value.weight.detach() for block in blocks]
    lipschitz = max(float(norm_1_inf(block.attention.out.weight.detach())) for block in blocks)
    return [1.0, *(csp_bound_factor(values[: depth + 1], lipschitz) for depth in range(len(values)))]


def _measure_growth(stream: Sequence[Tensor]) -> list[float]:
    """The residual after every layer relative to the input, an upper estimate of that with the best centres.

    The bound concerns the smallest |X - 1 x^T| in each of the two norms. For the input both are found exactly (for
    large matrices about the mean, for which Theorem 1 holds too if layers are linear). For later layers the median is
    the best centre in the 1-norm, and the mean replaces the best one in the inf-norm.
    """
    start = stream[0]
    small = start.numel() <= MAX_PROGRAM_ENTRIES
    first = float(residual(start, "per_norm" if small else "mean"))
    grown = [_upper_residual(x) if small else float(residual(x, "mean")) for x in stream[1:]]
    return [1.0, *(value / first for value in grown)]


def _upper_residual(x: Tensor) -> float:
    columns, rows = norm_1(x - centre_of(x, "median")), norm_inf(x - centre_of(x, "mean"))
    return float((columns * rows).sqrt())


def _draw_depth(group: Group, table: pd.DataFrame, checkpoint: str) -> Chart:
    """A panel for each combination of parts; those without skip connections are in the first row."""
    chosen = table[(table["checkpoint"] == checkpoint) & (table["measure"] == "relative_residual")]
    by_parts = [(parts, _rows_of(chosen, parts)) for parts in ALL_PARTS]
    shown = [("the whole model" if parts.is_whole else str(parts), rows) for parts, rows in by_parts if len(rows)]
    title = f"{group.task}, {CHECKPOINT_TITLES[checkpoint]}: residual about the mean token; {caption(chosen)}"
    limits = f"biases are 0 except in the whole model; values below {SHOWN_FROM:g} are plotted at {SHOWN_FROM:g}"
    rows = 2 if len(shown) > 1 else 1
    return draw_grid(
        f"{group.task}-residual-{checkpoint}",
        [(name, _from_rounding(here)) for name, here in shown],
        looks_of_rows(table),
        columns=len(shown) // rows,
        axes_names=("blocks passed", ["relative residual, (1,inf) norm"] * rows),
        heading=f"{title}\n{limits}",
        log_rows=rows - 1,
    )


def _draw_bound(group: Group, table: pd.DataFrame) -> Chart:
    """Growth of the residual through attentions alone, and its bounds: a panel for each checkpoint."""
    growth, bound = (table[table["measure"] == measure] for measure in ("growth", "bound"))
    looks, checkpoints = looks_of_rows(growth), table["checkpoint"].unique()
    looks |= {f"{row}: bound": Look(looks[row].colour, "none", "-.") for row in bound[ROW].unique()}
    lines = pd.concat([_from_rounding(growth), bound.assign(**{ROW: bound[ROW] + ": bound"})])
    title = f"{group.task}, attention alone: growth of the residual (from {SHOWN_FROM:g}) and bounds of CSP's Theorem 1"
    return draw_grid(
        f"{group.task}-bound",
        [(CHECKPOINT_TITLES[one], lines[lines["checkpoint"] == one]) for one in checkpoints],
        looks,
        columns=len(checkpoints),
        axes_names=("attentions passed", ["residual / residual of the input"]),
        heading="\n".join([title, *CAVEAT.split("; ")]),
        log_rows=1,
        size=(5.5, 4.2),
    )


def _from_rounding(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(mean=rows["mean"].clip(lower=SHOWN_FROM))


def _rows_of(table: pd.DataFrame, parts: Parts) -> pd.DataFrame:
    return table[(table["skip"] == parts.skip) & (table["mlp"] == parts.mlp) & (table["norm"] == parts.norm)]
