"""How close a swapped model is to the original on held-out inputs, as Markdown and JSON."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from sliceformer_lab.commands.swap.labelled_task import mean_of_tokens
from sliceformer_lab.commands.swap.pretrained_model import LibraryModel
from sliceformer_lab.commands.swap.swap_verdict import SwapVerdict, verdict_section
from sliceformer_lab.runs.files import write_json, write_text
from sliceformer_lab.runs.plain_text import markdown_table
from sliceformer_lab.training.heal import Inputs, LayerHealing, last_states, relative_error

TITLES = {"swapped": "swapped, not healed", "layers": "healed layer by layer", "together": "healed together"}


@dataclass(frozen=True, kw_only=True)
class Fidelity:
    """Means over held-out inputs."""

    layer_errors: list[float]  # of each swapped layer for the original's input
    final_error: float  # of the last hidden states
    cosine: float  # of the mean of the last states of an input
    same_class: float | None  # share of inputs; None for a model without classes
    times: tuple[float, float]  # seconds of the original and of the student for all held-out inputs, in turns


@dataclass(frozen=True, kw_only=True)
class SwapReport:
    """The content of report.json."""

    model: str
    attention: str
    layers: Sequence[int]
    depth: int
    num_inputs: int
    num_held_out: int
    fidelity: Mapping[str, Fidelity]
    seconds: Mapping[str, float]
    options: Mapping[str, object]
    code: str


@torch.no_grad()
def measure(opened: LibraryModel, student: Any, layers: Sequence[int], batches: Sequence[Inputs]) -> Fidelity:
    """Compares `student` with the model that was opened."""
    ours, theirs = opened.trunk(student), opened.trunk(opened.model)
    probe = LayerHealing(ours, theirs, layers, lr=0.0, num_steps=1)
    by_layer, final, cosines, same, times = [], [], [], [], [0.0, 0.0]
    for inputs in batches:
        states = []
        for place, model in enumerate((theirs, ours)):
            started = time.perf_counter()
            states.append(last_states(model, inputs))
            times[place] += time.perf_counter() - started
        size = len(states[0])  # the last batch may have fewer inputs, which count as many
        by_layer.append(torch.stack(probe.losses(inputs)).expand(size, -1))
        final.append(relative_error(states[1], states[0], inputs).expand(size))
        cosines.append(F.cosine_similarity(mean_of_tokens(states[0], inputs), mean_of_tokens(states[1], inputs)))
        classes = [opened.classes(model, inputs) for model in (opened.model, student)]
        if classes[0] is not None and classes[1] is not None:
            same.append((classes[0] == classes[1]).float())
    return Fidelity(
        layer_errors=torch.cat(by_layer).mean(0).tolist(),
        final_error=float(torch.cat(final).mean()),
        cosine=float(torch.cat(cosines).mean()),
        same_class=float(torch.cat(same).mean()) if same else None,
        times=(times[0], times[1]),
    )


def write_report(folder: Path, report: SwapReport, verdict: SwapVerdict | None) -> None:
    """Writes report.md, and report.json after it."""
    write_text(folder / "report.md", _format_page(report, verdict))
    facts = asdict(report) | ({} if verdict is None else {"verdict": verdict.facts()})
    write_json(folder / "report.json", facts)


def _format_page(report: SwapReport, verdict: SwapVerdict | None) -> str:
    judged = "" if verdict is None else f"\n{verdict_section(verdict)}"
    unknown = "" if verdict else " Whether a task keeps its score is not measured: give labelled.file."
    places = ", ".join(map(str, report.layers))
    first, last = report.fidelity["swapped"], report.fidelity["together"]
    layers = markdown_table(
        ["layer", *TITLES.values()],
        *[
            [str(layer), *[f"{report.fidelity[stage].layer_errors[row]:.3f}" for stage in TITLES]]
            for row, layer in enumerate(report.layers)
        ],
    )
    stages = markdown_table(
        ["model", "error of the last states", "cosine of embeddings", "same class", "healing, s"],
        *[
            [
                title,
                f"{one.final_error:.3f}",
                f"{one.cosine:.3f}",
                "–" if one.same_class is None else f"{100 * one.same_class:.1f} %",
                f"{report.seconds[stage]:.0f}" if stage in report.seconds else "–",
            ]
            for stage, title in TITLES.items()
            for one in [report.fidelity[stage]]
        ],
    )
    return f"""# {report.attention} in layers {places} of {report.model}

{report.num_inputs:,} unlabelled inputs healed {len(report.layers)} of {report.depth} layers. On {report.num_held_out}
other inputs the cosine of the healed model's embeddings with the original's is {last.cosine:.3f} ({first.cosine:.3f}
before healing).{unknown}
{judged}
## How close is it to the original?

{stages}

Errors are mean squared errors over the variance of the original's outputs: 0 is equal, 1 is no better than a constant.
By layer, for the original's input:

{layers}

The held-out inputs took the original {last.times[0]:.2f} s and the healed model {last.times[1]:.2f} s, in turns.

```python
{report.code}
```
"""
