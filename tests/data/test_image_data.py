"""Image data from the official formats to batches."""

from __future__ import annotations

import multiprocessing
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image, ImageOps
from support import official_files, task_modules
from support.plans import encoded
from support.task_modules import module

from sliceformer_lab.data.images.base import ArrayImages, ImageData, ImageSplit
from sliceformer_lab.data.images.cifar import CIFAR10
from sliceformer_lab.data.images.crop_flip import random_crop_flip
from sliceformer_lab.data.images.folders import ImageFolder
from sliceformer_lab.data.images.imagenet import TinyImageNet
from sliceformer_lab.data.images.mnist import MNIST
from sliceformer_lab.data.images.picture_files import picture_size, read_picture
from sliceformer_lab.data.input_files import read_inputs
from sliceformer_lab.data.spec import LoadPlan
from sliceformer_lab.data.splits import STAGES
from sliceformer_lab.errors import DataError


def ready(name: str, root: Path, plan: LoadPlan | None = None, **options: Any) -> ImageData:
    return cast(ImageData, task_modules.ready(name, root, plan, **options))


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("cifar10", {"protocol": None}),
        ("cifar10", {"protocol": 5}),
        ("mnist", {"packed": False}),
    ],
)
def test_pickles_of_python_2_and_3_and_packed_files_hold_the_same_pictures(
    name: str, form: dict[str, Any], tmp_path: Path
) -> None:
    usual: dict[str, Any] = {"protocol": 4} if name == "cifar10" else {"packed": True}
    for part, options in (("a", usual), ("b", form)):
        official_files.IMAGE_SETS[name](tmp_path / part, **options)
    a, b = (ready(name, tmp_path / part).fingerprint() for part in "ab")
    assert a["sha256"] == b["sha256"]


def test_a_few_images_of_a_split_are_of_all_classes(tmp_path: Path) -> None:
    for name in ("train", "test"):
        official_files.image_folder(tmp_path / name)
    few = ready("image_folder", tmp_path, limit_train=20, limit_eval=12)
    for stage, size in (("train", 20), ("test", 12)):
        targets = few.splits[stage].targets_at(list(range(size)))  # type: ignore[index]
        assert targets.unique().tolist() == [0, 1, 2] and len(few.splits[stage]) == size  # type: ignore[index]


@pytest.mark.parametrize("names", [("train", "valid"), ("Training", "validation"), ("train", "dev")])
def test_folders_of_splits_have_the_names_that_a_split_column_may_have(names: tuple[str, str], tmp_path: Path) -> None:
    for name in (*names, "test"):
        official_files.image_folder(tmp_path / name)
    data = ready("image_folder", tmp_path)
    assert {stage: len(split) for stage, split in data.splits.items()} == {"train": 60, "val": 60, "test": 60}
    assert data.class_names() == ("ant", "bee", "wasp")
    official_files.image_folder(tmp_path / "val")
    with pytest.raises(DataError, match=r"are both folders of the val split; keep one"):
        ready("image_folder", tmp_path)


def test_hidden_files_and_folders_are_no_pictures_and_no_class(tmp_path: Path) -> None:
    official_files.image_folder(tmp_path)
    before = {stage: len(split) for stage, split in ready("image_folder", tmp_path).splits.items()}
    for name in (".ipynb_checkpoints", "__MACOSX"):
        shutil.copytree(tmp_path / "bee", tmp_path / name)
    shutil.copytree(tmp_path / "bee", tmp_path / "ant" / ".ipynb_checkpoints")
    (tmp_path / "ant" / "._0.png").write_bytes(b"resource fork of macOS")
    data = ready("image_folder", tmp_path)
    assert {stage: len(split) for stage, split in data.splits.items()} == before
    assert data.class_names() == ("ant", "bee", "wasp")
    assert len(list(read_inputs(tmp_path, "picture", None))) == 60


def pictures(folder: Path, **options: Any) -> ImageFolder:
    """Sixty pictures of three classes, 48 x 56, in `folder`, unless others are there."""
    if not folder.is_dir():
        official_files.image_folder(folder)
    return ImageFolder(root=str(folder), **options)


def save_by_turns(folder: Path, given: Sequence[Image.Image], ending: str = "png") -> None:
    """Saves every other picture in the first of two classes."""
    for name in "01":
        (folder / name).mkdir(parents=True)
    for i, picture in enumerate(given):
        picture.save(folder / str(i % 2) / f"{i}.{ending}")


def all_inputs(data: ImageData) -> torch.Tensor:
    data.setup()
    return torch.cat([batch.inputs for loader in data.val_dataloader() for batch in loader])


def test_size_and_mirroring_follow_from_the_pictures(tmp_path: Path) -> None:
    for name, size, grey in (("grey", 29, True), ("coloured", 50, False), ("large", 300, False)):
        square = Image.linear_gradient("L").resize((size, size + 20))
        coloured = Image.merge("RGB", (square, ImageOps.mirror(square), square.rotate(90)))
        save_by_turns(tmp_path / name, [square if grey else coloured] * 12)
    found = {}
    for name in ("grey", "coloured", "large"):
        data = pictures(tmp_path / name, val_fraction=0.2, test_fraction=0.2)
        found[name] = {choice.option: (choice.value, choice.reason) for choice in data.choices()}
        assert data.spec.image_size == (found[name]["data.image_size"][0],) * 2
        data.setup()
        assert data.splits["train"].batch([0]).inputs.shape[2:] == data.spec.image_size  # type: ignore[attr-defined]
    assert [options["data.image_size"][0] for options in found.values()] == [28, 48, 64]
    assert [options["data.mirror"][0] for options in found.values()] == [False, True, True]
    assert "more than 64 take long" in found["large"]["data.image_size"][1]
    set_by_hand = pictures(tmp_path / "large", image_size=32, mirror=False, val_fraction=0.2, test_fraction=0.2)
    assert [choice.option for choice in set_by_hand.choices()] == ["data.batch_size"]


def test_only_mirroring_mirrors(tmp_path: Path) -> None:
    bright_on_the_right = Image.fromarray(np.tile(np.arange(0, 256, 16, dtype=np.uint8), (16, 1)))
    save_by_turns(tmp_path / "set", [bright_on_the_right] * 4)
    for mirror, kinds in ((True, {True, False}), (False, {True})):
        data = pictures(tmp_path / "set", mirror=mirror, smallest_crop=1.0, val_fraction=0.0, test_fraction=0.0)
        data.setup()
        torch.manual_seed(0)
        x = torch.cat([data.splits["train"].batch([0, 1, 2, 3]).inputs for _ in range(5)])  # type: ignore[attr-defined]
        assert set((x[..., -1].mean((1, 2)) > x[..., 0].mean((1, 2))).tolist()) == kinds


def test_decoded_pictures_stay_in_memory_and_equal_those_from_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    data = pictures(tmp_path / "set", image_size=24, val_fraction=0.5)
    some = pictures(tmp_path / "set", image_size=24, val_fraction=0.5, memory=10 * 3 * 48 * 56 / 1e9)
    none = pictures(tmp_path / "set", image_size=24, val_fraction=0.5, memory=0.0)
    with caplog.at_level("INFO"):
        from_files, from_some, kept = all_inputs(none), all_inputs(some), all_inputs(data)
    assert "keeping 60 of 60 images in memory" in caplog.text
    assert "keeping 10 of 60 images in memory" in caplog.text and "data.num_workers" in caplog.text
    torch.testing.assert_close(kept, from_files, rtol=0, atol=0)
    torch.testing.assert_close(from_some, from_files, rtol=0, atol=0)
    (tmp_path / "set").rename(tmp_path / "elsewhere")
    data.num_workers = 2
    torch.testing.assert_close(all_inputs(data), from_files, rtol=0, atol=0)  # workers need no files either
    with pytest.raises(DataError, match="cannot be read"):
        all_inputs(some)


@pytest.mark.parametrize(
    ("ending", "sides", "image_size"),
    [("jpg", (240, 400), 16), ("png", (240, 400), 16), ("png", (410, 273), 48)],  # 273 * (96 / 273) is more than 96
)
def test_a_picture_given_by_its_file_is_prepared_as_in_training(
    ending: str, sides: tuple[int, int], image_size: int, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    noise = [Image.fromarray(rng.integers(0, 256, (*sides, 3), dtype=np.uint8)) for _ in range(6)]
    with_palette = [picture.quantize(32, Image.Quantize.FASTOCTREE) for picture in noise]
    save_by_turns(tmp_path / "set", noise if ending == "jpg" else with_palette, ending)
    data = pictures(tmp_path / "set", image_size=image_size, val_fraction=0.3, test_fraction=0.3)
    kept = all_inputs(data)
    files = [tmp_path / "set" / place for place in data.places("val", range(len(kept)))]
    read = [one.content for file in files for one in data.read_inputs(file, None)]
    torch.testing.assert_close(encoded(data, read).inputs, kept, rtol=0, atol=0)


def test_a_reduced_palette_keeps_the_mean_of_its_pixels(tmp_path: Path) -> None:
    stripes = Image.fromarray(np.tile(np.uint8([[0, 255]]), (64, 32))).convert("P")
    stripes.save(file := tmp_path / "stripes.png")
    small = np.asarray(read_picture(file, shorter_side=8), dtype=float)[1:-1, 1:-1]
    assert small.min() > 120 and small.max() < 136, "the nearest pixels would be black or white"


@pytest.mark.parametrize("ending", ["jpg", "png", "tiff"])  # Pillow turns a TIFF itself, but not in its head
def test_photographs_are_turned_as_their_camera_says(ending: str, tmp_path: Path) -> None:
    grey = Image.fromarray(np.uint8([[0, 60, 120], [160, 200, 250]])).resize((48, 32), Image.Resampling.NEAREST)
    upright = grey.convert("RGB")
    for orientation, angle in {1: 0, 3: 180, 6: 90, 8: -90}.items():
        exif = Image.Exif()
        exif[ExifTags.Base.Orientation] = orientation
        upright.rotate(angle, expand=True).save(file := tmp_path / f"{orientation}.{ending}", exif=exif, quality=100)
        assert picture_size(file) == (48, 32)
        np.testing.assert_allclose(np.asarray(read_picture(file), float), np.asarray(upright, float), atol=8)
        assert read_picture(file, shorter_side=16).size == (24, 16)


def test_crop_is_a_window_of_the_padded_picture_and_flip_its_mirror() -> None:
    image = torch.arange(1, 37, dtype=torch.uint8).view(1, 1, 6, 6)
    padded = torch.zeros(10, 10, dtype=torch.uint8)
    padded[2:8, 2:8] = image[0, 0]
    windows = [padded[i : i + 6, j : j + 6] for i in range(5) for j in range(5)]
    possible = {tuple(v.flatten().tolist()) for w in windows for v in (w, w.flip(1))}
    drawn = random_crop_flip(image.expand(2000, 1, 6, 6), pad=2, flip=True)
    assert {tuple(row) for row in drawn.flatten(1).tolist()} == possible


def test_pictures_are_normalised_as_published(tmp_path: Path) -> None:
    data = ready("cifar10", tmp_path, augment="none")
    split = cast(ImageSplit, data.splits["train"])
    pixels = split.images.read(torch.from_numpy(split.rows[:2]))
    mean, std = torch.tensor(CIFAR10.mean).view(3, 1, 1), torch.tensor(CIFAR10.std).view(3, 1, 1)
    torch.testing.assert_close(split.__getitems__([0, 1]).inputs, (cast(torch.Tensor, pixels) / 255 - mean) / std)


def test_cifar_is_downloaded_once_by_two_processes_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    official_files.cifar10(tmp_path)
    archive = official_files.packed_tar(tmp_path / "cifar-10-batches-py", tmp_path / "cifar-10-python.tar.gz")
    monkeypatch.setattr(CIFAR10, "archive", official_files.official(archive))
    root = tmp_path / "root"
    fork = multiprocessing.get_context("fork")
    both = [fork.Process(target=lambda: module("cifar10", root, download=True).setup()) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(30)
    assert [process.exitcode for process in both] == [0, 0]
    assert {p.name for p in root.iterdir()} == {"cifar-10-batches-py", archive.name, ".preparing.lock"}
    ready("cifar10", root)


def test_tiny_imagenet_and_mnist_are_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    official_files.tiny_imagenet(tmp_path / "a")
    zipped = official_files.packed_zip(tmp_path / "a" / "tiny-imagenet-200", tmp_path / "tiny-imagenet-200.zip")
    monkeypatch.setattr(TinyImageNet, "archive", official_files.official(zipped))
    official_files.mnist(tmp_path / "b")
    files = tuple(official_files.official(tmp_path / "b" / "MNIST" / "raw" / a.name) for a in MNIST.archives)
    monkeypatch.setattr(MNIST, "archives", files)
    for name in ("tiny_imagenet", "mnist"):
        assert set(module(name, tmp_path / "root", download=True, verify=True).digests()) == set(STAGES)
    fingerprint = module("mnist", tmp_path / "other", download=True, verify=True).fingerprint()
    assert fingerprint["official"] and fingerprint["name"] == "mnist"


def test_an_altered_copy_never_has_the_official_name(tmp_path: Path) -> None:
    fingerprint = ready("cifar10", tmp_path).fingerprint()
    assert not fingerprint["official"]
    assert fingerprint["name"] == f"cifar10 (unofficial copy {fingerprint['sha256'][:8]})"
    for name in ("tiny_imagenet", "imagenet1k", "dogs_vs_cats"):
        (tmp_path / name).mkdir()
        assert "unofficial copy" in ready(name, tmp_path / name).fingerprint()["name"]


def test_fingerprint_changes_with_a_single_pixel_or_class(tmp_path: Path) -> None:
    before = ready("mnist", tmp_path, split_seed=0).fingerprint()["sha256"]
    assert ready("mnist", tmp_path, split_seed=1).fingerprint()["sha256"] == before
    for part in ("pixels", "targets"):
        data = ready("mnist", tmp_path)
        getattr(data.sources["test"], part).view(-1)[3] ^= 1
        assert data.fingerprint()["sha256"] != before


def test_digits_equal_those_that_scikit_learn_reads(tmp_path: Path) -> None:
    from sklearn.datasets import load_digits

    digits, scans = cast(ArrayImages, ready("digits", tmp_path).sources["train"]), load_digits()
    assert torch.equal(digits.pixels[:, 0], torch.from_numpy(scans.images).byte())
    assert digits.targets.tolist() == scans.target.tolist()
