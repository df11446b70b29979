"""Do trained softmax maps tend to doubly stochastic ones? Column sums of attention maps before and after training.

usage: python studies/column_sums.py RUN_FOLDER... [--samples 64] [--output FILE]

CSP and Sliceformer replace attention maps by doubly stochastic ones, because such maps were seen to help. A row of a
softmax map sums to 1; the map is doubly stochastic if each column does too. An untrained map is nearly uniform, which
is doubly stochastic for a trivial reason. So the control has the same rows with their weights in random order:
training tends to doubly stochastic maps if the column sums differ from 1 by less than in the control.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from sliceformer_lab.batch import Batch
from sliceformer_lab.commands.inspect.mixing import mixing
from sliceformer_lab.measures.capture import evaluation_mode
from sliceformer_lab.measures.maps import tokens_read
from sliceformer_lab.measures.statistics import student_half_width
from sliceformer_lab.runs.commit import git_commit
from sliceformer_lab.runs.files import write_json
from sliceformer_lab.training.build import build_task
from sliceformer_lab.training.interfaces import TaskModule
from sliceformer_lab.training.saved.saved_run import load_run


def column_deviation(maps: Tensor) -> Tensor:
    """Root mean square distance of a column sum from 1, (M, N, N) -> (M,); 0 with row sums of 1: doubly stochastic."""
    return (maps.double().sum(-2) - 1).square().mean(-1).sqrt()


def with_mixed_rows(maps: Tensor, generator: torch.Generator) -> Tensor:
    """The maps with the weights of each row in random order, (M, N, N) -> (M, N, N)."""
    order = torch.rand(maps.shape, generator=generator).argsort(-1)
    return maps.gather(-1, order)


def measured(model: TaskModule, batch: Batch, seed: int) -> dict[str, list[float]]:
    """Per layer, means over samples and heads: deviation, that of the control, and tokens read by a token.

    Raises ValueError for a model without token maps.
    """
    generator = torch.Generator().manual_seed(seed)
    blocks = list(model.encoder.blocks)
    found: dict[str, list[float]] = {"deviation": [], "control": [], "tokens_read": []}
    with evaluation_mode(model), mixing(blocks) as calls:
        model(batch)
    for layer in range(len(blocks)):
        values: dict[str, list[Tensor]] = {name: [] for name in found}
        for sample in range(len(batch)):
            ours = calls[layer].sample(sample).maps(64)
            if ours is None:
                raise ValueError("the attention has no token maps; this study needs runs with mha")
            values["deviation"].append(column_deviation(ours[1]))
            values["control"].append(column_deviation(with_mixed_rows(ours[1], generator)))
            values["tokens_read"].append(tokens_read(ours[1]))
        for name, parts in values.items():
            found[name].append(float(torch.cat(parts).mean()))
    return found


def main() -> None:
    """Measure the runs and print a table by layer, means over runs with 95 % intervals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--output", type=Path, help="write the numbers of every run as JSON")
    options = parser.parse_args()
    rows = []
    for folder in options.folders:
        run = load_run(folder)
        split = run.data.splits["val"]
        batch = split.batch(list(range(min(options.samples, len(split)))))
        seed = int(run.summary["seed"])
        facts = {"task": run.summary["task"], "attention": run.summary["attention"], "seed": seed}
        trained = measured(run.model, batch, seed)
        torch.manual_seed(seed)
        untrained = measured(build_task(run.plan, run.data.spec), batch, seed)
        rows.append({**facts, "untrained": untrained, "trained": trained})
    Console(width=110).print(as_table(rows))
    if options.output:
        write_json(options.output, {"samples": options.samples, "git_commit": git_commit(), "runs": rows})


def as_table(rows: list[dict[str, object]]) -> Table:
    """One row a layer and moment."""
    table = Table("layer", "weights", "deviation of column sums", "control", "ratio", "tokens read")
    for moment in ("untrained", "trained"):
        numbers = {name: np.array([row[moment][name] for row in rows]) for name in rows[0][moment]}  # type: ignore[index]
        numbers["ratio"] = numbers["deviation"] / numbers["control"]
        for layer in range(numbers["ratio"].shape[1]):
            cells = [interval(numbers[name][:, layer]) for name in ("deviation", "control", "ratio", "tokens_read")]
            table.add_row(str(layer + 1), moment, *cells)
    return table


def interval(values: np.ndarray) -> str:
    """Mean and Student's 95 % interval of a column of the table."""
    if len(values) < 2:
        return f"{values.mean():.3f}"
    return f"{values.mean():.3f} ± {float(student_half_width(values.std(ddof=1), len(values))):.3f}"


if __name__ == "__main__":
    main()
