"""Pathfinder's files: drawn in parallel, continued after an interruption, or read from the published layout."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.plans import prepared

from sliceformer_lab.data.cache import content_digest
from sliceformer_lab.data.sequences import pathfinder_files
from sliceformer_lab.data.sequences.pathfinder import LRAPathfinder
from sliceformer_lab.data.sequences.snake_board import SnakeOptions
from sliceformer_lab.data.sequences.snakes import Snakes
from sliceformer_lab.errors import DataError

SMALL: dict[str, Any] = {"difficulty": "easy", "num_examples": 40, "processes": 1, "batch_size": 4}


def pathfinder(root: Path, **options: Any) -> LRAPathfinder:
    return prepared(LRAPathfinder(root=str(root), **(SMALL | options)))


def everything(data: LRAPathfinder) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (n, 1024) and labels (n,) of all splits, in the order of the pictures."""
    batches = [data.splits[stage].batch(list(range(len(data.splits[stage])))) for stage in data.stages()]
    if "train" in data.splits:  # training rows are shuffled by split_seed
        batches[0] = data.splits["train"].batch(np.argsort(data.splits["train"].rows).tolist())  # type: ignore[attr-defined]
    return (
        np.concatenate([batch.inputs.numpy() for batch in batches]),
        np.concatenate([batch.target.numpy() for batch in batches]),
    )


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> LRAPathfinder:
    return pathfinder(tmp_path_factory.mktemp("pathfinder"))


def test_splits_are_80_10_10_percent_of_the_seeds_pictures_in_their_order(drawn: LRAPathfinder) -> None:
    assert drawn.sizes() == {"num_train": 32, "num_val": 4, "num_test": 4}
    for count, sizes in ((10, (8, 1, 1)), (19, (15, 1, 3)), (200_000, (160_000, 20_000, 20_000))):
        assert tuple(pathfinder_files.split_sizes(count).values()) == sizes
    pixels, labels = everything(drawn)
    snakes = Snakes(SnakeOptions.published(32, "easy"))
    for index in range(40):
        drawing = snakes.draw(0, index)
        assert np.array_equal(pixels[index], drawing.pixels.ravel())
        assert labels[index] == drawing.label


def test_values_are_pixels_from_minus_1_to_1(drawn: LRAPathfinder) -> None:
    ids = drawn.splits["test"].batch([0, 1])
    values = pathfinder(drawn.path, pixels="values").splits["test"].batch([0, 1])
    assert (ids.inputs.dtype, ids.padding, values.padding) == (torch.int64, None, None)
    torch.testing.assert_close(values.inputs, (ids.inputs / 255.0 - 0.5)[..., None] / 0.5)


def test_pictures_do_not_depend_on_processes_or_shards(
    drawn: LRAPathfinder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pathfinder_files, "IMAGES_PER_SHARD", 3)
    other = pathfinder(tmp_path, processes=2)
    for found, expected in zip(everything(other), everything(drawn), strict=True):
        assert np.array_equal(found, expected)


def test_an_interrupted_generation_continues_with_the_missing_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pathfinder_files, "IMAGES_PER_SHARD", 8)
    whole = pathfinder(tmp_path / "whole")
    drawn: Counter[int] = Counter()
    draw = Snakes.draw

    def counted(self: Snakes, seed: int, index: int) -> Any:
        if index == 20 and not drawn[20]:
            drawn[20] += 1
            raise KeyboardInterrupt
        drawn[index] += 1
        return draw(self, seed, index)

    monkeypatch.setattr(Snakes, "draw", counted)
    with pytest.raises(KeyboardInterrupt):
        pathfinder(tmp_path / "stopped")
    stopped = pathfinder(tmp_path / "stopped")
    assert {index for index, times in drawn.items() if times == 2} == {16, 17, 18, 19, 20}  # of the third shard
    assert content_digest(stopped.folder) == content_digest(whole.folder)
    assert not list(stopped.folder.glob("*.partial"))


def test_repeated_images_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = Snakes.draw
    monkeypatch.setattr(Snakes, "draw", lambda self, seed, index: draw(self, seed, 0 if index == 39 else index))
    with pytest.raises(DataError, match=r"1 images were drawn twice; choose another data\.generator_seed"):
        pathfinder(tmp_path)


def official(root: Path, size: int = 32, count: int = 24, folder: str = "curv_baseline") -> Path:
    """Pictures in the published layout, in lists 0, 2 and 10; picture i has the grey level 5 + i; one file is empty."""
    base = root / f"pathfinder{size}" / folder
    (base / "metadata").mkdir(parents=True)
    for part, batch in enumerate((0, 2, 10)):
        (base / "imgs" / str(batch)).mkdir(parents=True)
        rows = []
        for number in range(count // 3):
            index = part * (count // 3) + number
            path = base / "imgs" / str(batch) / f"sample_{number}.png"
            Image.new("L", (size, size), 5 + index).save(path)
            rows.append(f"imgs/{batch} sample_{number}.png {number} {index % 2} 1.8 6 2.0 5 1.5 2 1\n")
        (base / "metadata" / f"{batch}.npy").write_text("".join(rows))
    (base / "imgs" / "2" / "sample_3.png").write_bytes(b"")
    return base


def test_official_files_are_read_in_order_without_the_empty_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    base = official(tmp_path)
    with caplog.at_level(logging.INFO):
        data = pathfinder(tmp_path, source="official")
    assert "1 of 24 images are empty files, left out" in caplog.text
    pixels, labels = everything(data)
    kept = [index for index in range(24) if index != 8 + 3]
    assert pixels.shape == (23, 1024) and (pixels == pixels[:, :1]).all()
    assert pixels[:, 0].tolist() == [5 + index for index in kept]
    assert labels.tolist() == [index % 2 for index in kept]
    assert data.sizes() == {"num_train": 18, "num_val": 2, "num_test": 3}
    found = data.fingerprint()
    assert not found["official"] and "23 images in the published layout" in found["note"]
    with (base / "metadata" / "2.npy").open("a") as file:
        file.write("imgs/2 sample_0.png 9 1\n")
    after = pathfinder(tmp_path, source="official")  # changed lists are read again
    assert after.folder != data.folder and sum(after.sizes().values()) == 24


def test_an_edited_picture_of_the_published_files_is_read_again(tmp_path: Path) -> None:
    base = official(tmp_path)
    before = pathfinder(tmp_path, source="official")
    assert pathfinder(tmp_path, source="official").folder == before.folder
    Image.new("L", (32, 32), 200).save(base / "imgs" / "10" / "sample_7.png")  # the last test picture
    after = pathfinder(tmp_path, source="official")
    assert [int(data.splits["test"].batch([2]).inputs.max()) for data in (before, after)] == [28, 200]


def _emptied(folder: Path) -> None:
    for file in folder.iterdir():
        file.write_bytes(b"")


def _row(text: str) -> Any:
    return lambda base: (base / "metadata" / "2.npy").write_text(f"imgs/2 sample_0.png 0 1 1.8\n{text}\n")


BROKEN = [
    (
        lambda base: (base / "metadata").rename(base / "lists"),
        r"metadata holds no lists of images .*pathfinder32.*data\.source=generated",
    ),
    (_row("imgs/2 sample_1.png 1"), r"2\.npy, line 2: given 'imgs/2 sample_1\.png 1', expected"),
    (_row("imgs/2 sample_99.png 1 1"), r"2\.npy, line 2: .*sample_99\.png is missing"),
    (lambda base: [_emptied(base / "imgs" / part) for part in ("0", "2")], "lists 8 images, expected at least 10"),
    (lambda base: Image.new("L", (30, 32)).save(base / "imgs/0/sample_2.png"), "has 32 x 30 pixels, expected 32 x 32"),
]


@pytest.mark.parametrize(("spoil", "message"), BROKEN)
def test_damaged_official_files_are_reported_in_one_sentence(tmp_path: Path, spoil: Any, message: str) -> None:
    spoil(official(tmp_path))
    with pytest.raises(DataError, match=message):
        pathfinder(tmp_path, source="official")
