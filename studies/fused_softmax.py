"""Training steps of LRA's Text with csp and with mha: unfused by the recipe's attention dropout, and fused without it.

usage: python studies/fused_softmax.py     measure on one thread; `make docs` then writes the table of docs/speed.md

All trainings take turns in one process. A step's time is that of the processor in the fastest of a few steps, which
depends less on what else the machine does than the clock's. The texts are random letters that fill every token.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from results import RESULTS

from sliceformer_lab.commands.benchmark.benchmark_options import BenchmarkOptions
from sliceformer_lab.commands.benchmark.machine import machine
from sliceformer_lab.config.compose import compose_job
from sliceformer_lab.runs.files import write_text
from sliceformer_lab.training.timing import TimedTraining

RECIPE = "recipe=sliceformer/table2_lra_text"  # four layers of 256 channels
DROPOUTS, ATTENTIONS = ("0.1", "0"), ("csp", "mha")  # attention dropout: the recipe's, and none
SIZES = {1024: (2, 4), 4096: (1, 3)}  # tokens -> examples of a batch, measured steps
NUM_TEXTS = 64  # of each split, half of them in each class


def write_reviews(folder: Path, tokens: int) -> None:
    """Write the folders of IMDB with random letters; every text fills `tokens`."""
    generator = np.random.default_rng(0)
    for stage, number in product(("train", "test"), range(NUM_TEXTS)):
        label, stars = (("pos", 9), ("neg", 2))[number % 2]
        path = folder / "aclImdb" / stage / label / f"{number}_{stars}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(generator.integers(97, 123, tokens, dtype=np.uint8).tobytes())


def training(folder: Path, tokens: int, dropout: str, attention: str) -> TimedTraining:
    """A training that has made one step, which is not counted."""
    words = [RECIPE, f"attention={attention}", f"encoder.attention_dropout={dropout}", f"data.root={folder}"]
    words += [f"data.max_len={tokens}", f"data.batch_size={SIZES[tokens][0]}", "data.verify=false"]
    found = TimedTraining(compose_job([*words, "hydra.run.dir=unused"]), "cpu", cached=1)
    found.step()
    return found


def measured(tokens: int) -> dict[str, dict[str, float]]:
    """Processor seconds of a step by attention dropout and attention."""
    seconds: dict[str, dict[str, float]] = {dropout: {} for dropout in DROPOUTS}
    with TemporaryDirectory() as name:
        write_reviews(Path(name), tokens)
        trainings = {key: training(Path(name), tokens, *key) for key in product(DROPOUTS, ATTENTIONS)}
        for _, ((dropout, attention), one) in product(range(SIZES[tokens][1]), trainings.items()):
            before = time.process_time()
            one.step()
            took = time.process_time() - before
            seconds[dropout][attention] = min(took, seconds[dropout].get(attention, took))
            sys.stderr.write(f"{tokens} tokens, dropout {dropout}, {attention}: {took:.2f} s\n")
    return seconds


if __name__ == "__main__":
    torch.set_num_threads(1)
    facts = machine(BenchmarkOptions())
    content = {
        "machine": {key: facts[key] for key in ("processor", "load_before", "versions", "git_commit")},
        "seconds": {str(tokens): measured(tokens) for tokens in SIZES},
    }
    write_text(RESULTS / "fused_softmax.json", json.dumps(content, indent=1) + "\n")
