"""How long does one pass of a swapped encoder take, by length? studies/swap/swap_times.py RESULT.json

An encoder of the size of MiniLM with random weights, 4,096 positions, batch 1, one thread. In a round all rows run one
after another, so that a busy machine slows all of them; ratios are the medians over rounds. Times are of the processor.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import BertConfig, BertModel

from sliceformer_lab import swap

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows, found = models(), []
    for length in LENGTHS:
        tokens = torch.randint(1000, 30000, (1, length))
        for model in rows.values():
            seconds(model, tokens)
        rounds = [{name: seconds(model, tokens) for name, model in rows.items()} for _ in range(options.rounds)]
        ms = {name: round(1000 * median(one[name] for one in rounds), 2) for name in rows}
        ratio = {name: round(median(one["mha"] / one[name] for one in rounds), 3) for name in rows}
        found.append({"length": length, "ms": ms, "times_faster": ratio})
        facts = {"rounds": options.rounds, "load": os.getloadavg()[0], "torch": torch.__version__, "lengths": found}
        options.result.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
