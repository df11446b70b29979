"""What does one pass of a swapped encoder take, by length? studies/swap/swap_times.py TIMES.json MEMORY.json

An encoder of the size of MiniLM with random weights, 4,096 positions, batch 1, one thread. In a round all rows run one
after another, so that a busy machine slows all of them; ratios are the medians over rounds. Times are of the processor.
Memory is the growth of the resident set in a pass without gradients. A file that is there is not measured again.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import BertConfig, BertModel

from sliceformer_lab import swap
from sliceformer_lab.measures.call_cost import PeakMemory

ROWS: dict[str, dict[str, object]] = {
    "mha": {},
    "csp": {},
    "csp_shift_only": {},
    "sliceformer": {},
    "local": {"block_size": 16},
    "mean": {},
    "random_permutation": {},
    "identity": {},
}
LENGTHS = (128, 256, 512, 1024, 2048, 4096)


def models() -> dict[str, Any]:
    sizes = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
    original = BertModel(BertConfig(**sizes, max_position_embeddings=max(LENGTHS)), add_pooling_layer=False).eval()
    return {
        name: original if name == "mha" else swap(copy.deepcopy(original), name, overrides=options)
        for name, options in ROWS.items()
    }


@torch.no_grad()
def seconds(model: Any, tokens: torch.Tensor) -> float:
    started = time.process_time()
    model(input_ids=tokens)
    return time.process_time() - started


@torch.no_grad()
def megabytes(model: Any, tokens: torch.Tensor) -> float:
    """The peak of what a second pass allocates."""
    model(input_ids=tokens)
    memory = PeakMemory("cpu")
    model(input_ids=tokens)
    if memory.peak is None:
        raise OSError("this system does not tell a process its peak of memory")
    return round(memory.peak / 1e6, 1)


def measure_times(rows: dict[str, Any], num_rounds: int) -> dict[str, Any]:
    found = []
    for length in LENGTHS:
        tokens = torch.randint(1000, 30000, (1, length))
        for model in rows.values():
            seconds(model, tokens)
        rounds = [{name: seconds(model, tokens) for name, model in rows.items()} for _ in range(num_rounds)]
        ms = {name: round(1000 * median(one[name] for one in rounds), 2) for name in rows}
        ratio = {name: round(median(one["mha"] / one[name] for one in rounds), 3) for name in rows}
        found.append({"length": length, "ms": ms, "times_faster": ratio})
    return {"rounds": num_rounds, "load": os.getloadavg()[0], "torch": torch.__version__, "lengths": found}


def measure_memory(rows: dict[str, Any]) -> dict[str, Any]:
    found = []
    for length in LENGTHS:
        tokens = torch.randint(1000, 30000, (1, length))
        found.append({"length": length, "mb": {name: megabytes(model, tokens) for name, model in rows.items()}})
    return {"torch": torch.__version__, "lengths": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("times", type=Path)
    parser.add_argument("memory", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = models()
    for file, measure in (
        (options.memory, measure_memory),
        (options.times, partial(measure_times, num_rounds=options.rounds)),
    ):
        if not file.exists():
            file.write_text(json.dumps(measure(rows), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
