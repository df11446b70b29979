"""Images with masks: read, checked, split, and augmented together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support import official_files
from support.plans import prepared

from sliceformer_lab.batch import NO_CLASS
from sliceformer_lab.data.base import DataModule
from sliceformer_lab.data.images.image_pairs import Pair, read_pair, resize_mask
from sliceformer_lab.data.images.mask_folder import MaskFolder, MaskSplit
from sliceformer_lab.errors import DataError

SIZE = (24, 32)


def module(root: Path, **options: Any) -> DataModule:
    if not any(root.iterdir()):
        official_files.mask_folder(root)
    return prepared(MaskFolder(root=str(root), cache=f"{root}_cache", processes=1, **options))


def split_of(data: DataModule, stage: str = "train") -> MaskSplit:
    split = data.splits[stage]  # type: ignore[index]
    assert isinstance(split, MaskSplit)
    return split


def test_images_and_masks_are_resized_and_named(tmp_path: Path) -> None:
    data = module(tmp_path, pad=0, mirror=False)
    assert data.spec.image_size == SIZE and data.spec.num_classes == 2 and data.spec.targets == "pixels"
    assert data.class_names() == ("dark", "bright")
    batch = split_of(data).batch([0, 1])
    assert batch.inputs.shape == (2, 3, *SIZE) and batch.target.shape == (2, *SIZE)
    file = tmp_path / split_of(data).place(0)
    truth = np.asarray(Image.open(tmp_path / "masks" / f"{file.stem}.png")).astype(np.int64)
    np.testing.assert_array_equal(batch.target[0].numpy(), np.where(truth == 255, NO_CLASS, truth))
    np.testing.assert_array_equal(split_of(data).stored(0), np.asarray(Image.open(file)))
    torch.testing.assert_close(split_of(data).targets_at([0, 1]), batch.target)


def test_sizes_that_are_null_are_the_median_and_are_reported(tmp_path: Path) -> None:
    official_files.mask_folder(tmp_path, size=(100, 150))
    data = module(tmp_path)
    assert data.spec.image_size == (64, 96)
    assert [str(choice).partition(" (")[0] for choice in data.choices()][:2] == ["data.height=64", "data.width=96"]
    assert module(tmp_path, height=16, width=20).spec.image_size == (16, 20)


def test_image_and_mask_move_together(tmp_path: Path) -> None:
    split = split_of(module(tmp_path, pad=6, mirror=True))
    still = split_of(module(tmp_path, pad=0, mirror=False))
    test = split_of(module(tmp_path), "test")
    assert test.pad == 0 and not test.mirror
    black = torch.tensor([-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225])[:, None, None]
    changed = borders = 0
    for row in range(8):
        moved, kept = split[row], still[row]
        bright = (
            moved.inputs[0].mean(dim=0) > 0.0
        )  # of the normalised image: the bright half, whose first column has no class
        known = moved.target[0] != NO_CLASS
        assert (bright == (moved.target[0] == 1))[known].float().mean() > 0.97
        assert not (moved.target[0] == NO_CLASS).all()
        changed += not torch.equal(moved.target, kept.target)
        border = (moved.inputs[0] - black).abs().amax(dim=0) < 1e-5
        if border.any():  # it has no class; few pixels of the image are as black
            assert (moved.target[0][border] == NO_CLASS).float().mean() > 0.97
        borders += int(border.any())
    assert changed > 4 and borders


def test_folders_of_splits_are_kept_and_a_missing_one_is_held_out_from_training(tmp_path: Path) -> None:
    for stage, count in (("train", 20), ("test", 4)):
        official_files.mask_folder(tmp_path / stage, count)
    data = module(tmp_path)
    assert set(data.places("test", range(4))) == {f"test/images/{i}.jpg" for i in range(4)}
    assert data.sizes() == {"num_train": 18, "num_val": 2, "num_test": 4}
    assert all(place.startswith("train/") for place in data.places("val", range(2)))


def test_values_other_than_numbers_and_palettes_are_read(tmp_path: Path) -> None:
    official_files.mask_folder(own := tmp_path / "unnamed")
    (own / "classes.txt").unlink()
    paint(own, 0, lambda mask: np.pad(mask[1:, 1:], ((1, 0), (1, 0)), constant_values=4))
    small = module(own, height=8, width=8)
    assert not (split_of(small, "train").pixels[:, 3] == 5).any()  # no resized mask has it
    assert small.class_names() == ("0", "1", "2", "3", "4")  # up to the largest
    official_files.mask_folder(tmp_path := tmp_path / "other")
    for i in range(30):
        paint(tmp_path, i, lambda mask: np.where(mask == 1, 255, 0))
    split, other = (split_of(module(tmp_path, values=values, pad=0, mirror=False)) for values in ((0, 255), (255, 0)))
    target = split.batch([0]).target
    assert set(target.unique().tolist()) == {0, 1} and torch.equal(other.batch([0]).target, 1 - target)
    for file in (tmp_path / "masks").iterdir():
        mask = Image.fromarray((np.asarray(Image.open(file)) // 255).astype(np.uint8))
        mask.putpalette([10, 20, 30, 200, 100, 0])
        mask.save(file)
    assert set(split_of(module(tmp_path, pad=0)).batch([0]).target.unique().tolist()) == {0, 1}


def paint(root: Path, number: int, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Change one mask."""
    file = root / "masks" / f"{number}.png"
    Image.fromarray(change(np.asarray(Image.open(file))).astype(np.uint8)).save(file)


def without_a_name(root: Path) -> None:
    """A class of one mask loses its name after the masks were prepared."""
    paint(root, 3, lambda mask: np.where(mask == 1, 2, mask))
    names = root / "classes.txt"
    names.write_text("dark\nbright\nbrighter\n")
    assert len(module(root).class_names()) == 3
    names.write_text("dark\nbright\n")


def cleared(root: Path) -> None:
    for number in range(30):
        paint(root, number, lambda mask: np.where(mask == 255, 255, 0))


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no mask": (lambda root: (root / "masks" / "3.png").unlink(), r"images/3.jpg has no mask; add .*masks/3.png"),
    "no image": (lambda root: (root / "images" / "3.jpg").unlink(), r"masks/3.png has no image"),
    "one mask for two images": (
        lambda root: Image.new("RGB", (32, 24)).save(root / "images" / "3.png"),
        r"images/3.jpg and .*images/3.png have the same mask .*masks/3.png; rename one of them",
    ),
    "no images": (lambda root: [f.unlink() for f in (root / "images").iterdir()], r"images holds no images; put"),
    "other size": (
        lambda root: paint(root, 3, lambda mask: mask[:, 1:]),
        r"masks/3.png has 31 x 24 pixels, and its image 3.jpg 32 x 24 as a viewer shows it; give both the same size",
    ),
    "class without a name": (
        lambda root: paint(root, 3, lambda mask: mask + 4),
        r"masks/3.png holds the class 5, and classes.txt names 2 classes, 0 to 1; .*data.ignore=5",
    ),
    "class that lost its name": (
        without_a_name,
        r"masks/3.png holds the class 2, and classes.txt names 2 classes, 0 to 1; name it there",
    ),
    "one class": (cleared, r"hold the class 0 and ignored pixels \(data.ignore=255\) only; .*data.values=\[0,255\]"),
    "colours": (
        lambda root: Image.new("RGB", (32, 24)).save(root / "masks" / "3.png"),
        r"masks/3.png has colours \(mode RGB\); .* 8-bit grey, or with a palette",
    ),
    "one name": (lambda root: (root / "classes.txt").write_text("sky\n"), r"classes.txt names 1 classes; put two"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_data_that_do_not_fit_are_one_clear_sentence(name: str, tmp_path: Path) -> None:
    spoil, complaint = FAULTS[name]
    official_files.mask_folder(tmp_path)
    spoil(tmp_path)
    with pytest.raises(DataError, match=complaint):
        module(tmp_path)


@pytest.mark.parametrize(("bits", "row"), [(4, b"\x01\x23"), (2, b"\x1b"), (1, b"\x30"), (8, b"\x00\x01\x02\x03")])
def test_a_grey_mask_of_a_few_bits_holds_its_own_numbers(bits: int, row: bytes, tmp_path: Path) -> None:
    Image.new("RGB", (4, 1)).save(image := tmp_path / "image.png")
    (mask := tmp_path / "mask.png").write_bytes(official_files.png(4, 1, b"\0" + row, bits))
    found, _ = read_pair(Pair(image, mask), (1, 4), None, None)
    assert found[3].tolist() == [[1, 1, 2, 2] if bits == 1 else [1, 2, 3, 4]]


def test_a_value_that_is_no_class_is_refused(tmp_path: Path) -> None:
    official_files.mask_folder(tmp_path)
    with pytest.raises(DataError, match=r"holds the value 1, which is neither in data.values=\[0, 2\] nor data.ignore"):
        module(tmp_path, values=(0, 2))
    with pytest.raises(DataError, match=r"holds the class 255, one more than fit; set data.ignore=255 or data.values"):
        module(tmp_path, ignore=None)
    with pytest.raises(ValueError, match="twice"):
        MaskFolder(root=str(tmp_path), cache=str(tmp_path), values=(0, 0))


def test_a_resized_mask_has_no_class_that_lies_between_two() -> None:
    mask = np.array([[0, 9], [9, 0]], dtype=np.uint8)
    assert set(resize_mask(mask, (5, 5)).ravel()) == {0, 9}
