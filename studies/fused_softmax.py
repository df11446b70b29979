"""Training steps of LRA's Text with csp and with softmax attention, unfused by its recipe's dropout and fused without.

usage: python studies/fused_softmax.py               write the table (`make docs`)
       python studies/fused_softmax.py measure       first measure it again, on one thread

All trainings take turns in one process. The time is that of the processor in the fastest of a few single steps of the
bare loop of `benchmark suite=training`, which depends less on what else the machine does than the clock's.
"""

from __future__ import annotations

import json
import sys
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from growth import markdown
from marked_sections import with_section
from results import RESULTS

from sliceformer_lab.commands.benchmark.benchmark_options import BenchmarkOptions
from sliceformer_lab.commands.benchmark.machine import machine
from sliceformer_lab.commands.benchmark.training_recipes import FUSED, training_words, write_data
from sliceformer_lab.commands.benchmark.training_steps import Training
from sliceformer_lab.commands.benchmark.workloads import Workload
from sliceformer_lab.config.checked import check_config
from sliceformer_lab.config.compose import compose_job
from sliceformer_lab.runs.files import write_text
from sliceformer_lab.training.build import build_data

FILE, PAGE = RESULTS / "fused_softmax.json", RESULTS.parents[1] / "docs" / "speed.md"
DROPOUTS = {"0.1": "the recipe's dropout of .1 on attention weights: unfused", "0": "no dropout on them: fused"}
SIZES = {1024: (2, 3), 4096: (1, 2)}  # tokens -> examples of a batch, rounds


def measured(tokens: int) -> dict[str, dict[str, float]]:
    """Processor seconds of a step by dropout and attention."""
    batch, rounds = SIZES[tokens]
    found: dict[str, dict[str, float]] = {dropout: {} for dropout in DROPOUTS}
    with TemporaryDirectory() as folder:
        workload, trainings = Workload("lra_text", "recipe", tokens, batch, 256), {}
        write_data(workload, Path(folder))
        for dropout, attention in product(DROPOUTS, ("csp", "mha")):
            words = [
                word for word in training_words(workload, attention, BenchmarkOptions(), Path(folder)) if word != FUSED
            ]
            words += [f"encoder.attention_dropout={dropout}", "hydra.mode=RUN", "hydra.run.dir=unused"]
            config = check_config(compose_job(words))
            data = build_data(config)
            data.prepare_data()
            data.setup()
            trainings[dropout, attention] = Training(config, data, Path(folder) / "runs")
        for _ in range(rounds):
            for (dropout, attention), training in trainings.items():
                seconds = training.with_bare_loop(0, 1).cpu_seconds
                found[dropout][attention] = min(seconds, found[dropout].get(attention, seconds))
                sys.stderr.write(f"{tokens} {dropout} {attention} {seconds:.2f} s\n")
    return found


def table(content: dict[str, Any]) -> str:
    """A line for each length and recipe, and the machine."""
    lines = [
        [f"{int(tokens):,}", DROPOUTS[key], *(f"{n:.2f}" for n in (csp, mha)), f"{csp / mha:.3f}"]
        for tokens, dropouts in content["seconds"].items()
        for key, (csp, mha) in ((key, (took["csp"], took["mha"])) for key, took in dropouts.items())
    ]
    facts = content["machine"]
    source = (
        f"`python studies/fused_softmax.py measure`: one thread of {facts['processor']}, "
        f"torch {facts['versions']['torch']}, commit {facts['git_commit']}, load {facts['load_before']:.0f}"
    )
    return f"{markdown(('tokens', 'training', '`csp`, s', '`mha`, s', 'csp / mha'), lines)}\n\n{source}"


def measure() -> None:
    """Measure all lengths and keep the results."""
    torch.set_num_threads(1)
    facts = machine(BenchmarkOptions())
    content = {
        "machine": {key: facts[key] for key in ("processor", "load_before", "versions", "git_commit")},
        "seconds": {str(tokens): measured(tokens) for tokens in SIZES},
    }
    write_text(FILE, json.dumps(content, indent=1) + "\n")


def page() -> str:
    """The page with the table between its markers."""
    content = json.loads(FILE.read_text(encoding="utf-8"))
    return with_section(PAGE.read_text(encoding="utf-8"), "fused softmax", table(content))


if __name__ == "__main__":
    if sys.argv[1:] == ["measure"]:
        measure()
    write_text(PAGE, page())
