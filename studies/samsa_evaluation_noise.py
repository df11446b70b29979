"""How much does SAMSA's published evaluation vary from pass to pass? Scores a finished run several times.

usage: python studies/samsa_evaluation_noise.py RUN_FOLDER [--passes 20] [--split test] [--output FILE]

The published code draws Gumbel noise in evaluation too, and new random vectors of nodes for molecules. So one model
has another score in each pass. The study draws each of the two alone, both, and neither; the weights never change.
The spread is what repeating an evaluation changes. It says nothing about other seeds of training.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.utilities.seed import isolate_rng
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.utils.data import DataLoader
from torchmetrics import MetricCollection

from sliceformer_lab.attention.samsa import SAMSA
from sliceformer_lab.batch import Batch
from sliceformer_lab.encoder.graph_tokens import RandomGraphTokens
from sliceformer_lab.runs.commit import git_commit
from sliceformer_lab.runs.files import write_json
from sliceformer_lab.training.saved.saved_run import Run, load_run

SETTINGS = {  # what each pass draws anew: the attention's Gumbel noise, the vectors of the nodes
    "both, as published": (True, True),
    "Gumbel noise": (True, False),
    "node vectors": (False, True),
    "neither": (False, False),
}


def main() -> None:
    """Score the run and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--passes", type=int, default=20)
    parser.add_argument("--split", choices=["val", "test"], default="test")
    parser.add_argument("--output", type=Path, help="write every score as JSON")
    options = parser.parse_args()
    run = load_run(options.folder)
    if not any(isinstance(module, SAMSA) for module in run.model.modules()):
        parser.exit(2, f"{options.folder} trained {run.summary['attention']}; this study needs a run with samsa\n")
    scores = noise(run, options.split, options.passes)
    Console(width=110).print(as_table(scores))
    if options.output:
        facts = {"split": options.split, "passes": options.passes, "git_commit": git_commit()}
        write_json(options.output, {**facts, "run": run.summary["name"], "metrics": scores})


def noise(run: Run, split: str, passes: int) -> dict[str, dict[str, list[float]]]:
    """The metrics of each pass: setting -> metric -> scores."""
    loader = {"val": run.data.val_dataloader, "test": run.data.test_dataloader}[split]()[0]
    scores: dict[str, dict[str, list[float]]] = {}
    for setting, (gumbel, vectors) in SETTINGS.items():
        found: dict[str, list[float]] = {}
        for seed in range(passes if gumbel or vectors else 1):
            for name, value in one_pass(run, loader, gumbel=gumbel, vectors=vectors, seed=seed).items():
                found.setdefault(name, []).append(value)
        scores[setting] = found
    return scores


def one_pass(run: Run, loader: DataLoader[Batch], *, gumbel: bool, vectors: bool, seed: int) -> dict[str, float]:
    """The metrics of one pass over the batches; `seed` gives what is drawn anew, and 0 what is not."""
    metrics: MetricCollection = run.model.build_metrics()  # type: ignore[attr-defined]
    with isolate_rng(), torch.no_grad(), ExitStack() as stack:
        for module in run.model.modules():
            if isinstance(module, SAMSA):
                module.random_evaluation = gumbel
            if isinstance(module, RandomGraphTokens) and not vectors:
                stack.enter_context(same_numbers(module))
        torch.manual_seed(seed)
        for batch in loader:
            metrics.update(run.model.predicted(batch).float(), batch.target)  # type: ignore[operator]
    return {name: float(value) for name, value in metrics.compute().items()}


@contextmanager
def same_numbers(module: nn.Module) -> Iterator[None]:
    """The module draws the same random numbers in every pass, and the rest of the model its own."""
    calls, outer = iter(range(10**9)), torch.get_rng_state()

    def before(*_: Any) -> None:
        nonlocal outer
        outer = torch.get_rng_state()
        torch.manual_seed(next(calls))

    def after(*_: Any) -> None:
        torch.set_rng_state(outer)

    hooks = [module.register_forward_pre_hook(before), module.register_forward_hook(after)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def as_table(scores: dict[str, dict[str, list[float]]]) -> Table:
    """Mean, standard deviation, smallest and largest score of every setting and metric."""
    table = Table("drawn in each pass", "metric", "passes", "mean", "sd", "smallest", "largest")
    for setting, metrics in scores.items():
        for name, values in metrics.items():
            found = torch.tensor(values, dtype=torch.float64)
            spread = found.std() if len(values) > 1 else torch.zeros(())
            numbers = (found.mean(), spread, found.min(), found.max())
            table.add_row(setting, name, str(len(values)), *(f"{float(number):.4f}" for number in numbers))
    return table


if __name__ == "__main__":
    main()
