"""A ViT of ours: swap and heal, or train from the start? studies/swap/vit.py FASHION RESULTS.jsonl

FASHION: a folder with FashionMNIST/raw/ and the four official files in it, unpacked. README.md declares the arms. A
line of the results is one arm of one attention and seed; it goes on where the file ends.
"""

from __future__ import annotations

import copy
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor
from torchvision.datasets import FashionMNIST

from sliceformer_lab import swap
from sliceformer_lab.training.heal import FinalHealing, LayerHealing

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from run_experiment import packed

TEACHER, SWAPPED = "mha", ("csp", "random_permutation", "identity")
SEEDS = (0, 1, 2)
NUM_TRAIN, NUM_TEST, BATCH = 12_000, 10_000, 64
PASSES = {"scratch": 5, "fine-tuned": 3, "healed, fine-tuned": 1}  # over the labelled pictures
RATES = {"scratch": 1e-3, "fine-tuned": 5e-4, "healed, fine-tuned": 5e-4}
HEALING_RATES = {"layers": 1e-3, "together": 3e-4}  # one pass each, without labels
MEAN, STD = 0.2860, 0.3530  # of the training pixels
DEPTH = 4


@dataclass(frozen=True)
class Pictures:
    """Pictures (E, 1, 28, 28) and their classes (E,)."""

    images: Tensor
    labels: Tensor

    def batches(self, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """One pass in an order of the seed; the rest that fills no batch is left out."""
        order = torch.randperm(len(self.labels), generator=torch.Generator().manual_seed(seed))
        for chosen in order[: len(order) // BATCH * BATCH].split(BATCH):
            yield self.images[chosen], self.labels[chosen]


def read_pictures(root: Path, *, is_train: bool, count: int) -> Pictures:
    """The first `count` pictures of an official split."""
    found = FashionMNIST(root, train=is_train)
    images = (found.data[:count, None].float() / 255 - MEAN) / STD
    return Pictures(images, found.targets[:count])


def build_vit(seed: int, attention: str) -> VisionTransformer:
    """A new ViT of 4 layers of 64 channels and 49 tokens, with this attention in all layers."""
    torch.manual_seed(seed)
    model = VisionTransformer(
        img_size=28,
        patch_size=4,
        in_chans=1,
        num_classes=10,
        embed_dim=64,
        depth=DEPTH,
        num_heads=4,
        mlp_ratio=2,
        global_pool="avg",  # a CLS token would read nothing where no token is mixed
        class_token=False,
    )
    return model if attention == TEACHER else swap(model, attention)


def train(model: VisionTransformer, pictures: Pictures, seed: int, passes: int, lr: float) -> None:
    """AdamW on the labels, with a warm-up of a twentieth of the steps and a cosine that ends near 0."""
    steps = passes * (len(pictures.labels) // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 0.05, 1.0, max(1, steps // 20)),
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps),
        ],
        [steps // 20],
    )
    model.train()
    for turn in range(passes):
        for images, labels in pictures.batches(1000 * seed + turn):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            schedule.step()
    model.eval()


def heal(teacher: VisionTransformer, attention: str, pictures: Pictures, seed: int) -> VisionTransformer:
    """The teacher with this attention in all layers, healed layer by layer and then together."""
    torch.manual_seed(seed)
    student = swap(copy.deepcopy(teacher), attention)
    inputs = [images for images, _ in pictures.batches(1000 * seed + 900)]
    layers = LayerHealing(student, teacher, range(DEPTH), lr=HEALING_RATES["layers"], num_steps=len(inputs))
    for images in inputs:
        layers.step(images)
    together = FinalHealing(student, teacher, lr=HEALING_RATES["together"], num_steps=len(inputs))
    for images in inputs:
        together.step(images)
    return student


@torch.no_grad()
def is_right(model: VisionTransformer, pictures: Pictures) -> np.ndarray:
    """Whether each picture's class is the predicted one: (E,)."""
    model.eval()
    predicted = torch.cat([model(images).argmax(1) for images in pictures.images.split(500)])
    right: np.ndarray = (predicted == pictures.labels).numpy()
    return right


def arms(seed: int, learning: Pictures) -> Iterator[tuple[str, str, VisionTransformer]]:
    """Attention, arm and model of all arms of a seed."""
    teacher = build_vit(seed, TEACHER)
    train(teacher, learning, seed, PASSES["scratch"], RATES["scratch"])
    yield TEACHER, "scratch", teacher
    for attention in SWAPPED:
        scratch = build_vit(seed, attention)
        train(scratch, learning, seed, PASSES["scratch"], RATES["scratch"])
        yield attention, "scratch", scratch
        torch.manual_seed(seed)
        tuned = swap(copy.deepcopy(teacher), attention)
        yield attention, "swapped", tuned
        train(tuned, learning, seed, PASSES["fine-tuned"], RATES["fine-tuned"])
        yield attention, "fine-tuned", tuned
        healed = heal(teacher, attention, learning, seed)
        yield attention, "healed", healed
        train(healed, learning, seed, PASSES["healed, fine-tuned"], RATES["healed, fine-tuned"])
        yield attention, "healed, fine-tuned", healed


def main(root: Path, results: Path) -> None:
    torch.set_num_threads(1)
    learning = read_pictures(root, is_train=True, count=NUM_TRAIN)
    scored = read_pictures(root, is_train=False, count=NUM_TEST)
    lines: list[dict[str, Any]] = (
        [json.loads(x) for x in results.read_text("utf-8").splitlines()] if results.exists() else []
    )
    finished = {seed for seed in SEEDS if sum(line["seed"] == seed for line in lines) == 1 + 5 * len(SWAPPED)}
    for seed in (seed for seed in SEEDS if seed not in finished):
        started, found = time.process_time(), []
        for attention, arm, model in arms(seed, learning):
            right = is_right(model, scored)
            line = {"attention": attention, "arm": arm, "seed": seed, "accuracy": float(right.mean())}
            found.append(line | packed(right))
            sys.stderr.write(
                f"seed {seed}, {attention}, {arm}: {line['accuracy']:.4f}, {time.process_time() - started:.0f} s\n"
            )
        with results.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in found)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
