"""Grey CIFAR-10 as sequences: the published grey levels in the order of the pixels, as tokens and as numbers."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from operator import mul
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from support import official_files
from support.plans import prepared, small_task
from torch import Tensor
from torch.testing import assert_close

from sliceformer_lab.data.pickles import load_arrays
from sliceformer_lab.data.sequences.pixels import LRAImage, grey


@pytest.fixture
def root(tmp_path: Path) -> Path:
    official_files.cifar10(tmp_path)
    return tmp_path


def ready(root: Path, **options: Any) -> LRAImage:
    return prepared(LRAImage(root=str(root), download=False, verify=False, batch_size=8, **options))


def photograph(root: Path, picture: int) -> tuple[Any, int]:
    """A test picture (1024, 3) and its class, read without our data module."""
    content = load_arrays(root / "cifar-10-batches-py" / "test_batch")
    return content["data"][picture].reshape(3, 1024).T.astype(np.float64), content["labels"][picture]


def random_colours() -> Tensor:
    return torch.randint(0, 256, (5, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def pixel_by_pixel(pixels: Tensor, level: Callable[[Fraction], int]) -> list[Any]:
    """The levels of the exact weighted sums."""
    weights = [Fraction(weight, 10_000) for weight in (2989, 5870, 1140)]
    colours = pixels.movedim(1, -1)
    levels = [level(sum(map(mul, weights, rgb), Fraction())) for rgb in colours.flatten(0, -2).tolist()]
    return cast(list[Any], torch.tensor(levels).view(colours.shape[:-1]).tolist())


def test_grey_is_tensorflow_s_whose_scale_is_half_a_level_longer() -> None:
    pixels = random_colours()
    expected = pixel_by_pixel(pixels, lambda weighted: int(weighted / 255 * Fraction(511, 2)))
    assert grey(pixels).tolist() == expected
    assert expected != pixel_by_pixel(pixels, int)
    extremes = torch.tensor([[0, 255], [0, 255], [0, 255]], dtype=torch.uint8).view(1, 3, 1, 2)
    assert grey(extremes).flatten().tolist() == [0, 255]


def test_tokens_are_grey_levels_row_after_row(root: Path) -> None:
    batch = ready(root).splits["test"].batch([3, 7])
    assert batch.inputs.shape == (2, 1024) and batch.inputs.dtype == torch.int64 and batch.padding is None
    for ids, label, picture in zip(batch.inputs, batch.target, (3, 7), strict=True):
        colours, of_file = photograph(root, picture)
        assert ids.tolist() == (colours @ [0.2989, 0.587, 0.114] / 255 * 255.5).astype(int).tolist()
        assert label == of_file


def test_values_are_standardised_as_in_mega(root: Path) -> None:
    tokens, values = (ready(root, pixels=kind).splits["test"].batch([0, 1]).inputs for kind in ("tokens", "values"))
    assert values.shape == (2, 1024, 1) and values.dtype == torch.float32
    assert_close(values[..., 0], (tokens / 255 - 0.48) / 0.24, rtol=1e-5, atol=1e-5)


def test_black_is_learned_like_any_other_pixel(root: Path) -> None:
    task = model(root)
    batch = task.example()  # all black
    task.loss(task(batch), batch.target).backward()
    gradient: Tensor = task.embedding.tokens.weight.grad
    assert gradient.shape[0] == 256 and gradient[0].abs().sum() > 0 and gradient[1:].abs().sum() == 0


def model(root: Path, pixels: str = "tokens") -> Any:
    return small_task("task=lra_image", data=ready(root, pixels=pixels).spec)
