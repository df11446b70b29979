"""Can Pathfinder be learned from its pixels, and how much ink do its pictures have?

usage: python studies/pathfinder_cnn.py ink                         mean brightness, share of pixels that are not black
       python studies/pathfinder_cnn.py learn ROOT OPTION=VALUE...  a small CNN and logistic regression

`learn` takes the options of LRAPathfinder (difficulty, num_examples, num_distractors), keeps the pictures in ROOT, and
takes cnn.epochs, cnn.lr, cnn.seed, cnn.save=FILE and cnn.start=FILE (weights that another level ended with). Both write
results/pathfinder.json. The CNN shows that the labels are in the pixels and that the data suffice; it is no attention
and is not compared with one.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from scipy.stats import binomtest
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from sliceformer_lab.data.sequences.base import SequenceStore
from sliceformer_lab.data.sequences.pathfinder import LRAPathfinder
from sliceformer_lab.data.sequences.snake_board import CONTOUR_LENGTHS, SnakeOptions
from sliceformer_lab.data.sequences.snakes import GENERATOR_VERSION, Snakes
from sliceformer_lab.runs.files import write_json

RESULT = Path(__file__).parent / "results" / "pathfinder.json"
INK_PICTURES = 400
# Measured once by running the published code with the options of the Long Range Arena and the scaling of the
# scipy.misc that it was written for: 1,000, 500 and 400 pictures. An audit found 20.1 and .34 for hard ones.
PUBLISHED_INK = {"easy": (13.10, 0.230), "intermediate": (15.51, 0.268), "hard": (20.25, 0.342)}
BATCH = 64


class Residual(nn.Module):
    """Two convolutions of 3 x 3 with batch norm, and a skip; the first may halve the sides."""

    def __init__(self, channels: int, out: int, stride: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        same = stride == 1 and channels == out
        self.skip = nn.Identity() if same else nn.Conv2d(channels, out, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = torch.relu(self.body(x) + self.skip(x))
        return added


def small_cnn() -> nn.Sequential:
    """Logits (B, 2) of pictures (B, 1, 32, 32): 7 residual blocks, the first two at full resolution."""
    stem = [nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), Residual(16, 16)]
    middle = [Residual(16, 32, 2), Residual(32, 32), Residual(32, 32)]
    coarse = [Residual(32, 64, 2), Residual(64, 64), Residual(64, 64)]
    return nn.Sequential(*stem, *middle, *coarse, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(64, 2))


def augmented(pictures: Tensor, random: torch.Generator) -> Tensor:
    """The batch turned by a random multiple of 90 degrees and perhaps mirrored, which keeps every label."""
    turns, mirror = torch.randint(4, (), generator=random).item(), torch.randint(2, (), generator=random).item()
    turned = torch.rot90(pictures, int(turns), (2, 3))
    return turned.flip(3) if mirror else turned


def train(
    model: nn.Module, pictures: Tensor, labels: Tensor, epochs: int, lr: float, check: Callable[[], float]
) -> None:
    """AdamW with one cycle of the learning rate; prints the loss and `check` after each epoch."""
    random = torch.Generator().manual_seed(torch.initial_seed())
    optimizer = torch.optim.AdamW(model.parameters(), lr, weight_decay=0.05)
    steps = epochs * (len(labels) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, steps, pct_start=0.2)
    for epoch in range(epochs):
        model.train()
        start, losses = time.perf_counter(), []
        order = torch.randperm(len(labels), generator=random)
        for rows in order.split(BATCH)[: len(labels) // BATCH]:
            loss = cross_entropy(model(augmented(pictures[rows], random)), labels[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        line = f"epoch {epoch + 1}: loss {np.mean(losses):.3f}, validation {check():.4f}"
        print(f"{line}, {time.perf_counter() - start:.0f} s", flush=True)  # noqa: T201


@torch.no_grad()
def right(model: nn.Module, pictures: Tensor, labels: Tensor) -> int:
    """How many labels the model finds."""
    model.eval()
    found = torch.cat([model(part).argmax(1) for part in pictures.split(500)])
    return int((found == labels).sum())


def score(found: int, count: int) -> dict[str, float]:
    """Accuracy with Wilson's 95 % interval, in percent."""
    interval = binomtest(found, count).proportion_ci(method="wilson")
    return {"accuracy": 100 * found / count, "low": round(100 * interval.low, 2), "high": round(100 * interval.high, 2)}


def splits(data: LRAPathfinder) -> dict[str, tuple[Tensor, Tensor]]:
    """Pictures (n, 1, 32, 32) from 0 to 1 and labels of each split."""
    data.prepare_data()
    stores = {str(stage): SequenceStore.open(data.folder, stage) for stage in data.stages()}
    return {
        stage: (
            torch.from_numpy(np.array(store.tokens)).reshape(-1, 1, data.side, data.side) / 255,
            torch.from_numpy(np.array(store.targets)),
        )
        for stage, store in stores.items()
    }


def learn(root: str, options: dict[str, Any]) -> dict[str, Any]:
    """Train both models and score them on the test pictures."""
    own = {name[4:]: options.pop(name) for name in list(options) if name.startswith("cnn.")}
    epochs, lr, seed = int(own.get("epochs", 10)), float(own.get("lr", 3e-3)), int(own.get("seed", 0))
    data = LRAPathfinder(root=root, **options)
    parts = splits(data)
    torch.manual_seed(seed)
    model = small_cnn().to(memory_format=torch.channels_last)
    if "start" in own:
        model.load_state_dict(torch.load(own["start"]))
    start = time.process_time()
    train(model, *parts["train"], epochs, lr, lambda: right(model, *parts["val"]) / len(parts["val"][1]))
    seconds = time.process_time() - start
    if "save" in own:
        torch.save(model.state_dict(), own["save"])
    flat = {stage: (pictures.flatten(1).numpy(), labels.numpy()) for stage, (pictures, labels) in parts.items()}
    linear = LogisticRegression(C=1e-2, max_iter=300).fit(*flat["train"])
    count = len(flat["test"][1])
    return {
        "sizes": {stage: len(labels) for stage, (_, labels) in parts.items()},
        "cnn": score(right(model, *parts["test"]), count)
        | {"parameters": sum(p.numel() for p in model.parameters()), "epochs": epochs, "lr": lr, "seed": seed}
        | {"process_seconds": round(seconds)},
        "logistic_regression": score(int((linear.predict(flat["test"][0]) == flat["test"][1]).sum()), count),
        "chance": 50.0,
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
    }


def ink() -> dict[str, Any]:
    """Statistics of the first pictures of seed 0 by difficulty, beside the published generator's."""
    found = {}
    for difficulty in CONTOUR_LENGTHS:
        snakes = Snakes(SnakeOptions.published(32, difficulty))
        pixels = np.stack([snakes.draw(0, index).pixels for index in range(INK_PICTURES)])
        mean, share = PUBLISHED_INK[difficulty]
        ours = {"mean": round(float(pixels.mean()), 2), "not_black": round(float((pixels > 0).mean()), 3)}
        found[difficulty] = {"ours": ours, "published": {"mean": mean, "not_black": share}}
    return {"pictures": INK_PICTURES, "generator_version": GENERATOR_VERSION, "levels": found}


def keep(name: str, found: dict[str, Any]) -> None:
    """Put a result under its command into results/pathfinder.json."""
    results = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.is_file() else {}
    write_json(RESULT, results | {name: found})
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    match sys.argv[1:]:
        case ["ink"]:
            keep("ink", ink())
        case ["learn", root, *words] if all("=" in word for word in words):
            given = {name: yaml.safe_load(value) for name, _, value in (word.partition("=") for word in words)}
            command = " ".join(["learn", "ROOT", *words])
            keep(re.sub(r"(cnn\.\w+=)\S*/", r"\1", command), learn(root, given))  # files without their folders
        case _:
            sys.exit(__doc__)
