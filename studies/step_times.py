"""Processor time and memory of training steps: attentions and ways to train them take turns in one process.

usage: python studies/step_times.py CASE ...    measure on one thread; `make docs` then writes the tables

Texts are random letters and clouds random points; both fill every token. A step's time is that of the processor in the
fastest of a few steps, which depends less on what else the machine does than the clock's.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import numpy as np
import torch
from results import RESULTS
from torch import nn

from sliceformer_lab.attention import softmax
from sliceformer_lab.attention.dropout import Dropout
from sliceformer_lab.commands.benchmark.benchmark_options import BenchmarkOptions
from sliceformer_lab.commands.benchmark.machine import machine
from sliceformer_lab.config.compose import compose_job, load_option
from sliceformer_lab.encoder.factory import build_encoder
from sliceformer_lab.measures.call_cost import PeakMemory
from sliceformer_lab.runs.files import write_text
from sliceformer_lab.training.timing import TimedTraining

FILE = RESULTS / "step_times.json"
NUM_TEXTS, NUM_CLOUDS = 64, 4  # of each split, half of them in each class
TEXT, POINTS = "recipe=sliceformer/table2_lra_text", "task=point_folder"  # four layers of 256; three layers of 64
UNDROPPED, KEPT = ("encoder.attention_dropout=0",), ("encoder.checkpoint=true",)
LONG = ("csp", "sliceformer", "linear", "samsa", "mha")


class Steps(Protocol):
    """What makes training steps."""

    def step(self) -> None:
        """Train for one step."""


@dataclass(frozen=True)
class Case:
    """Trainings that take turns: the words of all, the tokens, the batch, and attention and words of each."""

    words: tuple[str, ...]
    tokens: int
    batch: int
    ways: tuple[tuple[str, tuple[str, ...]], ...]
    rounds: int = 3


LENGTHS = (*(("csp", words) for words in ((), UNDROPPED)), *(("mha", words) for words in ((), UNDROPPED)))
LONG_ROWS = tuple((name, UNDROPPED) for name in LONG)
CHECKPOINTS = tuple((name, (*UNDROPPED, *KEPT)) for name in ("csp", "mha"))
CASES = {
    "text_1024": Case((TEXT,), 1024, 2, LENGTHS),
    "text_4096": Case((TEXT,), 4096, 1, (*LENGTHS, *((name, UNDROPPED) for name in LONG[1:4]), *CHECKPOINTS), rounds=2),
    "text_16384": Case((TEXT,), 16384, 1, (*LONG_ROWS[:4], CHECKPOINTS[0], LONG_ROWS[4]), rounds=2),
    "points_16384": Case((POINTS,), 16384, 1, (*LONG_ROWS[:4], CHECKPOINTS[0], LONG_ROWS[4]), rounds=2),
    "vit_64": Case((), 64, 64, tuple(product(("csp", "mha"), ((), ("bf16",), ("bf16", "torch"))))),
}


class EncoderTraining:
    """The ViT of both papers, six layers of 512, on random tokens; 'torch' uses torch's dropout and fused softmax."""

    def __init__(self, case: Case, attention: str, words: tuple[str, ...]) -> None:
        torch.manual_seed(0)
        encoder, block = load_option("encoder", "vit_paper"), load_option("block", "vit")
        self._model = build_encoder(encoder, block, load_option("attention", attention), case.tokens).train()
        self._tokens = torch.randn(case.batch, case.tokens, 512)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-4, fused=True)
        self._bf16, self._max_plain_keys = "bf16" in words, 0 if "torch" in words else softmax.MAX_PLAIN_KEYS
        for module in self._model.modules() if "torch" in words else ():
            if isinstance(module, Dropout):
                module.__class__ = nn.Dropout  # type: ignore[assignment]  # the same layer with torch's forward

    def step(self) -> None:
        """Train for one step."""
        softmax.MAX_PLAIN_KEYS = self._max_plain_keys
        self._optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=self._bf16):
            loss = self._model(self._tokens).float().square().mean()
        torch.autograd.backward(loss)
        self._optimizer.step()


def write_texts(folder: Path, tokens: int) -> None:
    """Write the folders of IMDB with random letters."""
    generator = np.random.default_rng(0)
    for stage, number in product(("train", "test"), range(NUM_TEXTS)):
        label, stars = (("pos", 9), ("neg", 2))[number % 2]
        path = folder / "aclImdb" / stage / label / f"{number}_{stars}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(generator.integers(97, 123, tokens, dtype=np.uint8).tobytes())


def write_clouds(folder: Path, tokens: int) -> None:
    """Write a folder of clouds with random points."""
    generator = np.random.default_rng(0)
    for stage, number in product(("train", "val", "test"), range(NUM_CLOUDS)):
        path = folder / stage / ("a", "b")[number % 2] / f"{number}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, generator.normal(size=(tokens, 3)).astype(np.float32))


def build(case: Case, attention: str, words: tuple[str, ...], folder: Path) -> Steps:
    """One training of a case, whose data are in the folder."""
    if not case.words:
        return EncoderTraining(case, attention, words)
    size = "num_points" if POINTS in case.words else "max_len"
    files = [f"data.root={folder}", f"data.{size}={case.tokens}", f"data.batch_size={case.batch}"]
    files += [f"data.cache={folder}/cache", "reference=null"] if POINTS in case.words else ["data.verify=false"]
    words = (*case.words, f"attention={attention}", *files, *words, "hydra.mode=RUN", "hydra.run.dir=unused")
    return TimedTraining(compose_job(list(words)), "cpu", cached=1)


def measure(name: str) -> dict[str, object]:
    """Processor seconds and peak memory of a step of each training of a case."""
    case = CASES[name]
    write: Callable[[Path, int], None] = write_clouds if POINTS in case.words else write_texts
    facts = machine(BenchmarkOptions())
    with TemporaryDirectory() as folder:
        if case.words:
            write(Path(folder), case.tokens)
        trainings = [build(case, *way, Path(folder)) for way in case.ways]
        seconds: list[list[float]] = [[] for _ in trainings]
        peaks = [0 for _ in trainings]
        for turn, (at, one) in product(range(case.rounds + 1), enumerate(trainings)):
            memory, before = PeakMemory("cpu"), time.process_time()
            one.step()
            took = time.process_time() - before
            if turn > 0:  # the first step also loads and allocates
                seconds[at].append(took)
            peaks[at] = max(peaks[at], memory.peak or 0)
            sys.stderr.write(f"{name}, {case.ways[at]}: {took:.2f} s, {peaks[at] / 1e6:,.0f} MB\n")
    return {
        "command": f"python studies/step_times.py {name}",
        "machine": {key: facts[key] for key in ("processor", "load_before", "versions", "git_commit")}
        | {"load_after": round(os.getloadavg()[0], 2)},
        "tokens": case.tokens,
        "batch": case.batch,
        "steps": [
            {"attention": way[0], "words": way[1], "seconds": took, "peak_bytes": peak}
            for way, took, peak in zip(case.ways, seconds, peaks, strict=True)
        ],
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    for case_name in sys.argv[1:]:
        measured = measure(case_name)
        known = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
        write_text(FILE, json.dumps({**known, case_name: measured}, indent=1) + "\n")
