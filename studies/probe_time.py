"""The processor time of the spectrum's measurement before training, with torch's number of threads, and its limits.

usage: OMP_WAIT_POLICY=PASSIVE python studies/probe_time.py

Exits with 1 if a measurement takes longer than its limit. The program itself sets this policy. Each of six layers is
measured at three places on random tokens of 512 channels, as many tokens as the task has. The processor time of all
threads depends little on what else the machine does; on an idle machine the clock shows less.
"""

from __future__ import annotations

import sys
import time

import torch

from sliceformer_lab.config.compose import load_option
from sliceformer_lab.measures.probe import measure
from sliceformer_lab.measures.probe_record import PLACES

LIMITS = {"cifar10": (64, 3.0), "mnist": (196, 6.0)}  # tokens, seconds
DEPTH, CHANNELS = 6, 512


def seconds(num_tokens: int) -> float:
    """The processor time of one measurement of all layers."""
    num_samples = load_option("callbacks", "default")["spectrum"]["num_samples"]
    x = torch.randn(num_samples, num_tokens, CHANNELS, generator=torch.Generator().manual_seed(0))
    start = time.process_time()
    for _ in range(DEPTH * len(PLACES)):
        measure(x)
    return time.process_time() - start


if __name__ == "__main__":
    taken = {task: seconds(num_tokens) for task, (num_tokens, _) in LIMITS.items()}
    for task, (num_tokens, limit) in LIMITS.items():
        found = f"{taken[task]:.2f} s (limit {limit:.0f} s) with {torch.get_num_threads()} threads"
        sys.stdout.write(f"{task}, {num_tokens} tokens: {found}\n")
    sys.exit(any(taken[task] > limit for task, (_, limit) in LIMITS.items()))
