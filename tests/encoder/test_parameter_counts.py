"""The published image and IMDB models, built from the YAMLs as a run builds them: their parameters, to the integer."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import timm
import torch
from support.plans import build_data, build_task

from sliceformer_lab.config.compose import compose_root, load_option
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.tasks.image import ImageClassification


class Images(NamedTuple):
    size: int
    channels: int
    patch: int
    classes: int


class Cell(NamedTuple):
    """A cell of a paper's table. With mean pooling the published models hold an unused CLS token and its position."""

    published: int
    encoder: str
    images: Images
    pool: str
    attention: str


DOGS, MNIST, MNIST_32 = Images(224, 3, 16, 2), Images(28, 1, 2, 10), Images(32, 1, 2, 10)
CIFAR10_P4 = Images(32, 3, 4, 10)
IMAGENET, TINY_224 = Images(224, 3, 16, 1000), Images(224, 3, 16, 200)
TINY_P8, TINY_P4 = Images(64, 3, 8, 200), Images(64, 3, 4, 200)


CELLS = {  # one of each architecture; test_recipes has all cells, to two decimals of a million
    "dogs_vs_cats, ViT": Cell(1_899_138, "vit_dogs", DOGS, "cls", "mha"),
    "dogs_vs_cats, Sliceformer": Cell(1_112_706, "vit_dogs", DOGS, "cls", "sliceformer"),
    "mnist, ViT": Cell(9_568_778, "vit_paper", MNIST, "cls", "mha"),
    "mnist, Sliceformer": Cell(6_423_050, "vit_paper", MNIST, "cls", "sliceformer"),
    "mnist padded to 32, ViT": Cell(9_599_498, "vit_paper", MNIST_32, "cls", "mha"),
    "mnist padded to 32, Sliceformer": Cell(6_453_770, "vit_paper", MNIST_32, "cls", "sliceformer"),
    "cifar10 of CSP, CSP": Cell(6_377_994, "vit_paper", CIFAR10_P4, "mean", "csp"),
    "cifar10 of CSP, CSP wide": Cell(9_523_722, "vit_paper", CIFAR10_P4, "mean", "csp_wide"),
    "imagenet1k, ViT": Cell(22_050_664, "vit_s", IMAGENET, "mean", "mha"),
    "imagenet1k, CSP": Cell(18_502_504, "vit_s", IMAGENET, "mean", "csp"),
    "tiny_imagenet at 224, ViT": Cell(21_742_664, "vit_s", TINY_224, "cls", "mha"),
    "tiny_imagenet at 224, Sliceformer": Cell(18_194_504, "vit_s", TINY_224, "cls", "sliceformer"),
    "tiny_imagenet at 64 patch 8, ViT": Cell(21_470_792, "vit_s", TINY_P8, "cls", "mha"),
    "tiny_imagenet at 64 patch 4, ViT": Cell(21_489_224, "vit_s", TINY_P4, "cls", "mha"),
}


def model(cell: Cell) -> ImageClassification:
    from_timm = cell.encoder == "vit_s"  # final norm in the encoder, none in the head
    images = cell.images
    nodes = {
        "encoder": load_option("encoder", cell.encoder),
        "block": load_option("block", "vit_timm" if from_timm else "vit"),
        "attention": load_option("attention", cell.attention),
        "optim": load_option("optim", "adam_cosine"),
    }
    data = DataSpec(
        name="images", num_classes=images.classes, image_size=(images.size, images.size), channels=images.channels
    )
    with torch.device("meta"):
        return ImageClassification(
            nodes,
            data,
            patch_size=images.patch,
            pool=cell.pool,  # type: ignore[arg-type]
            head_norm=not from_timm,
        )


@pytest.mark.parametrize("name", CELLS)
def test_parameters_are_those_of_the_paper(name: str) -> None:
    cell = CELLS[name]
    ours = model(cell)
    unused = 0 if cell.pool == "cls" else 2 * ours.encoder.options.dim
    assert sum(p.numel() for p in ours.parameters()) + unused == cell.published


@pytest.mark.parametrize(
    ("attention", "published"),
    [("mha", 8_835_074), ("sliceformer", 8_045_570), ("sliceformer_interleave", 8_045_570)],
)
def test_parameters_on_imdb_are_those_of_the_paper(attention: str, published: int) -> None:
    composed = compose_root(["task=imdb", f"attention={attention}"])
    composed["data"]["root"] = "unused"
    with torch.device("meta"):
        ours = build_task(composed, build_data(composed).spec)
    assert sum(p.numel() for p in ours.parameters() if p.requires_grad) == published


def test_vit_s_has_the_parameters_of_timm() -> None:
    theirs = timm.create_model("vit_small_patch16_224")  # not on the meta device, for which timm 1.0.20 is too old
    assert sum(p.numel() for p in theirs.parameters()) == CELLS["imagenet1k, ViT"].published
