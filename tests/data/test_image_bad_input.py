"""Missing, damaged, altered and hostile image data: one sentence that names the file, and no partial files."""

from __future__ import annotations

import gc
import pickle
from pathlib import Path

import pytest
from support import official_files
from support.task_modules import module

from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.data.base import DataModule
from sliceformer_lab.errors import DataError


def complaint(data: DataModule) -> str:
    """The message of one sentence that refuses bad data, at whichever step it is raised."""
    with pytest.raises(DataError) as caught:
        data.setup()
        for loader in (data.train_dataloader(), *data.val_dataloader(), *data.test_dataloader()):
            list(loader)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", ["mnist", "cifar10", "cifar100", "tiny_imagenet", "imagenet1k", "dogs_vs_cats"])
def test_missing_data_are_reported_with_what_to_put_where(name: str, tmp_path: Path) -> None:
    message = complaint(module(name, tmp_path))
    assert str(tmp_path) in message and ("put " in message or "get " in message)


@pytest.mark.parametrize(
    "name, file",
    [
        ("mnist", "MNIST/raw/t10k-images-idx3-ubyte.gz"),
        ("cifar10", "cifar-10-batches-py/data_batch_3"),
        ("tiny_imagenet", "tiny-imagenet-200/train/n01629819/images/n01629819_4.JPEG"),
        ("dogs_vs_cats", "train/dog.7.jpg"),
        ("image_folder", "bee/bee_3.png"),
    ],
)
def test_truncated_file_is_named(name: str, file: str, tmp_path: Path) -> None:
    official_files.IMAGE_SETS[name](tmp_path)
    path = tmp_path / file
    path.write_bytes(path.read_bytes()[:-300])
    assert str(path) in complaint(module(name, tmp_path))


def test_an_error_in_a_worker_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.5)  # how long torch waits for the worker
    official_files.dogs_vs_cats(tmp_path)
    path = tmp_path / "train" / "dog.7.jpg"
    path.write_bytes(path.read_bytes()[:-300])
    assert complaint(module("dogs_vs_cats", tmp_path, num_workers=1)).startswith(f"{path} cannot be read")
    gc.collect()  # the wait is over when the iterator is, which the caught error keeps alive


def test_files_that_are_not_cifar_batches_are_named(tmp_path: Path) -> None:
    official_files.cifar10(tmp_path)
    path = tmp_path / "cifar-10-batches-py" / "data_batch_2"
    for content in ([1, 2], {"data": 1, "labels": [1]}, {"labels": [3]}):
        path.write_bytes(pickle.dumps(content))
        assert f"{path} is not a CIFAR batch" in complaint(module("cifar10", tmp_path))
    path.write_bytes(pickle.dumps({"data": path}))
    assert f"{path} tried to load " in complaint(module("cifar10", tmp_path)), "an object is not built"
    path.write_bytes(official_files.python2_pickle("labels", official_files._pixels(2, 3072), [3, 10]))
    assert f"{path} holds labels outside 0..9" in complaint(module("cifar10", tmp_path))


def test_a_validation_class_without_training_images_is_named(tmp_path: Path) -> None:
    for part in ("train", "val"):
        official_files.image_folder(tmp_path / part)
    official_files.image_file(tmp_path / "val" / "hornet" / "1.png", 8)
    assert f"{tmp_path / 'val' / 'hornet'} is a class without training images" in complaint(
        module("image_folder", tmp_path)
    )
    official_files.tiny_imagenet(tmp_path)
    table = tmp_path / "tiny-imagenet-200" / "val" / "val_annotations.txt"
    table.write_text(table.read_text() + "val_6.JPEG\tn99\t0\t0\t1\t1\n")
    assert f"{table} names the class n99" in complaint(module("tiny_imagenet", tmp_path))


def test_an_unknown_policy_of_timm_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="auto_augment=nope"):
        module("imagenet1k", tmp_path, auto_augment="nope")
