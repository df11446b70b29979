"""Image data from the official formats to batches, and what is said when something is wrong with it."""

from __future__ import annotations

import gc
import multiprocessing
import pickle
from pathlib import Path
from typing import Any, cast

import official_files
import pytest
import torch
import yaml

from sliceformer_lab.batch import Batch
from sliceformer_lab.compose import CONF_DIR
from sliceformer_lab.config import ConfigError, construct, schema
from sliceformer_lab.data.augment import random_crop_flip
from sliceformer_lab.data.cifar import CIFAR10
from sliceformer_lab.data.download import OfficialFile
from sliceformer_lab.data.image import ImageData, ImageSplit, carve
from sliceformer_lab.data.imagenet import TinyImageNet
from sliceformer_lab.data.mnist import MNIST
from sliceformer_lab.errors import DataError

SETS = ["digits", *official_files.IMAGE_SETS]


def node(name: str, root: Path) -> dict[str, Any]:
    options: dict[str, Any] = yaml.safe_load((CONF_DIR / "data" / f"{name}.yaml").read_text())
    return options | {key: str(root) for key in options if key == "root"}


def module(name: str, root: Path, **options: Any) -> ImageData:
    """The data module of a YAML on files in `root`, whose checksums are not the official ones."""
    defaults = {"root": str(root), "download": False, "verify": False, "num_workers": 0, "image_size": 32}
    known = node(name, root)
    fitting = {key: value for key, value in (defaults | options).items() if key in known}
    return cast(ImageData, construct(known | fitting, where="data"))


def ready(name: str, root: Path, **options: Any) -> ImageData:
    """The data module on freshly written miniature files, set up."""
    if name != "digits" and not any(root.iterdir()):
        official_files.IMAGE_SETS[name](root)
    data = module(name, root, **options)
    data.prepare_data()
    data.setup()
    return data


def members(data: ImageData, stage: Any) -> tuple[int, set[int]]:
    """The source of a split and which of its pictures it holds."""
    split = cast(ImageSplit, data.splits[stage])
    return id(split.images), set(split.positions.tolist())


def complaint(data: ImageData) -> str:
    """The one sentence with which bad data is refused, wherever it is found out."""
    with pytest.raises(DataError) as caught:
        data.prepare_data()
        data.setup()
        for loader in (data.train_dataloader(), *data.val_dataloader(), *data.test_dataloader()):
            list(loader)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", SETS)
def test_official_format_reaches_the_first_batch(name: str, tmp_path: Path) -> None:
    data = ready(name, tmp_path)
    for loader in (data.train_dataloader(), *data.val_dataloader(), *data.test_dataloader()):
        batch: Batch = next(iter(loader))
        assert batch.inputs.shape[1:] == (data.spec.channels, *(data.spec.image_size or ()))
        assert batch.inputs.dtype == torch.float32 and torch.isfinite(batch.inputs).all()
        assert batch.target.dtype == torch.int64 and int(batch.target.min()) >= 0
        assert int(batch.target.max()) < data.spec.num_classes


@pytest.mark.parametrize("name", SETS)
def test_building_touches_no_disk_and_knows_its_options(name: str, tmp_path: Path) -> None:
    options = node(name, tmp_path / "absent")
    data = construct(options, where="data")
    assert not (tmp_path / "absent").exists()
    fields = schema(type(data))
    assert set(options) - {"_target_"} == set(fields)
    assert {k: v for k, v in options.items() if k in fields and k != "root"} == {
        k: default for k, (_, default) in fields.items() if k != "root"
    }
    if name != "image_folder":  # which has to list its classes
        assert data.spec.num_classes > 1


@pytest.mark.parametrize("name", SETS)
def test_splits_share_no_picture(name: str, tmp_path: Path) -> None:
    data = ready(name, tmp_path)
    seen = [(source, p) for source, positions in (members(data, s) for s in data.splits) for p in positions]
    assert len(seen) == len(set(seen)) == sum(len(s.targets) for s in data.sources.values())


def test_splits_follow_split_seed_and_not_the_run_seed(tmp_path: Path) -> None:
    data, same, other = (ready("cifar10", tmp_path, split_seed=s) for s in (3, 3, 4))
    assert members(data, "val")[1] == members(same, "val")[1] != members(other, "val")[1]
    reseeded = module("cifar10", tmp_path, split_seed=3)
    reseeded.seed = 99
    reseeded.setup()
    assert members(reseeded, "val")[1] == members(data, "val")[1]


def test_held_out_part_has_the_same_share_of_every_class() -> None:
    targets = torch.tensor([0] * 40 + [1] * 20 + [2] * 10)[torch.randperm(70)]
    kept, held = carve(targets, 0.2, seed=1)
    assert targets[held].bincount().tolist() == [8, 4, 2]
    assert sorted([*kept.tolist(), *held.tolist()]) == list(range(70))
    assert kept.tolist() != sorted(kept.tolist())


def test_limit_train_takes_the_first_of_the_shuffled_training_pictures_only(tmp_path: Path) -> None:
    whole, cut = ready("cifar10", tmp_path), ready("cifar10", tmp_path, limit_train=7)
    positions = [cast(ImageSplit, data.splits["train"]).positions.tolist() for data in (whole, cut)]
    assert positions[1] == positions[0][:7]
    assert cut.sizes() == {"num_train": 7, "num_val": 10, "num_test": 20}
    assert members(cut, "val")[1] == members(whole, "val")[1] and len(cut.splits["test"]) == len(whole.splits["test"])


def test_without_a_validation_share_there_is_no_validation_loader(tmp_path: Path) -> None:
    data = ready("cifar10", tmp_path, val_fraction=0.0)
    assert data.val_dataloader() == [] and len(data.splits["train"]) == 100


@pytest.mark.parametrize("protocol", [None, 4, 5])
def test_pickles_of_python_2_and_3_hold_the_same_pictures(protocol: int | None, tmp_path: Path) -> None:
    official_files.cifar10(tmp_path / "a", protocol=4)
    official_files.cifar10(tmp_path / "b", protocol)
    a, b = (ready("cifar10", tmp_path / part) for part in "ab")
    assert a.fingerprint()["sha256"] == b.fingerprint()["sha256"]


def test_packed_and_unpacked_mnist_are_the_same(tmp_path: Path) -> None:
    official_files.mnist(tmp_path / "a", packed=True)
    official_files.mnist(tmp_path / "b", packed=False)
    a, b = (ready("mnist", tmp_path / part) for part in "ab")
    assert a.fingerprint()["sha256"] == b.fingerprint()["sha256"]


def test_own_validation_and_test_folders_are_used_whole(tmp_path: Path) -> None:
    for part in ("train", "val", "test"):
        official_files.image_folder(tmp_path / part)
    assert {stage: len(s) for stage, s in ready("image_folder", tmp_path).splits.items()} == dict.fromkeys(
        ("train", "val", "test"), 60
    )
    few = cast(ImageSplit, ready("image_folder", tmp_path, limit_train=20).splits["train"])
    assert set(few.images.targets[few.positions].tolist()) == {0, 1, 2}


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
    pixels = split.images.read(split.positions[:2])
    mean, std = torch.tensor(CIFAR10.mean).view(3, 1, 1), torch.tensor(CIFAR10.std).view(3, 1, 1)
    torch.testing.assert_close(split.__getitems__([0, 1]).inputs, (cast(torch.Tensor, pixels) / 255 - mean) / std)


def test_cifar_is_downloaded_once_by_two_processes_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    official_files.cifar10(tmp_path)
    archive = official_files.packed_tar(tmp_path / "cifar-10-batches-py", tmp_path / "cifar-10-python.tar.gz")
    monkeypatch.setattr(CIFAR10, "archive", official_files.official(archive))
    root = tmp_path / "root"
    fork = multiprocessing.get_context("fork")
    both = [fork.Process(target=lambda: module("cifar10", root, download=True).prepare_data()) for _ in range(2)]
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
        data = module(name, tmp_path / "root", download=True, verify=True)
        data.prepare_data()
        data.setup()
        assert len(data.splits["train"])
    assert data.fingerprint()["official"] and data.fingerprint()["name"] == "mnist"


def test_altered_copy_is_never_called_by_the_official_name(tmp_path: Path) -> None:
    fingerprint = ready("cifar10", tmp_path).fingerprint()
    assert not fingerprint["official"]
    assert fingerprint["name"] == f"cifar10 (unofficial copy {fingerprint['sha256'][:8]})"
    for name in ("tiny_imagenet", "imagenet1k", "dogs_vs_cats"):
        (tmp_path / name).mkdir()
        assert "unofficial copy" in ready(name, tmp_path / name).fingerprint()["name"]


def test_fingerprint_changes_with_a_single_pixel(tmp_path: Path) -> None:
    before = ready("mnist", tmp_path, split_seed=0).fingerprint()["sha256"]
    assert ready("mnist", tmp_path, split_seed=1).fingerprint()["sha256"] == before
    data = ready("mnist", tmp_path)
    cast(Any, data.sources["test"]).pixels[3, 0, 5, 5] ^= 1
    assert data.fingerprint()["sha256"] != before


@pytest.mark.parametrize("name", ["mnist", "cifar10", "cifar100", "tiny_imagenet", "imagenet1k", "dogs_vs_cats"])
def test_missing_data_says_what_to_put_where(name: str, tmp_path: Path) -> None:
    message = complaint(module(name, tmp_path))
    assert str(tmp_path) in message and ("put " in message or "get " in message)


def test_missing_network_says_where_to_put_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unreachable = OfficialFile((tmp_path / "nowhere.tar.gz").as_uri(), "0", 1)
    monkeypatch.setattr(CIFAR10, "archive", unreachable)
    message = complaint(module("cifar10", tmp_path, download=True))
    assert "cannot be downloaded" in message and f"put it at {tmp_path / 'nowhere.tar.gz'}" in message


def test_download_that_differs_is_refused_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "changed.tar.gz").write_bytes(b"something else")
    monkeypatch.setattr(CIFAR10, "archive", OfficialFile((tmp_path / "changed.tar.gz").as_uri(), "0", 1))
    assert "arrived damaged or changed" in complaint(module("cifar10", tmp_path / "root", download=True))
    assert [p.name for p in (tmp_path / "root").iterdir()] == [".preparing.lock"]


def test_wrong_checksum_names_the_file_and_the_option(tmp_path: Path) -> None:
    official_files.cifar10(tmp_path)
    message = complaint(module("cifar10", tmp_path, verify=True))
    assert "data_batch_1" in message and "data.verify=false" in message


@pytest.mark.parametrize(
    "name, archive", [("cifar10", "cifar-10-python.tar.gz"), ("tiny_imagenet", "tiny-imagenet-200.zip")]
)
def test_cut_off_archive_is_named(name: str, archive: str, tmp_path: Path) -> None:
    official_files.IMAGE_SETS[name](tmp_path / "whole")
    pack = official_files.packed_tar if name == "cifar10" else official_files.packed_zip
    path = pack(next((tmp_path / "whole").iterdir()), tmp_path / archive)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    message = complaint(module(name, tmp_path))
    assert f"{path} is damaged" in message
    assert {p.name for p in tmp_path.iterdir()} == {"whole", archive, ".preparing.lock"}


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


def test_error_in_a_worker_is_one_sentence_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.5)  # how long torch waits for the worker
    official_files.dogs_vs_cats(tmp_path)
    path = tmp_path / "train" / "dog.7.jpg"
    path.write_bytes(path.read_bytes()[:-300])
    assert complaint(module("dogs_vs_cats", tmp_path, num_workers=1)).startswith(f"{path} cannot be read")
    gc.collect()  # the wait is over when the iterator is, which the caught error keeps alive


def test_unpacked_mnist_that_is_cut_off_is_named(tmp_path: Path) -> None:
    official_files.mnist(tmp_path, packed=False)
    path = tmp_path / "MNIST" / "raw" / "train-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    assert f"{path} is damaged" in complaint(module("mnist", tmp_path))


def test_batches_that_hold_something_else_are_named(tmp_path: Path) -> None:
    official_files.cifar10(tmp_path)
    path = tmp_path / "cifar-10-batches-py" / "data_batch_2"
    for content in ([1, 2], {"data": 1, "labels": [1]}, {"labels": [3]}):
        path.write_bytes(pickle.dumps(content))
        assert f"{path} holds no CIFAR batch" in complaint(module("cifar10", tmp_path))
    path.write_bytes(official_files.python2_pickle("labels", official_files._pixels(2, 3072), [3, 10]))
    assert f"{path} holds labels outside 0..9" in complaint(module("cifar10", tmp_path))


class Hostile:
    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.trace,)


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_hostile_pickle_is_refused_and_does_not_run(protocol: int, tmp_path: Path) -> None:
    official_files.cifar10(tmp_path)
    path, trace = tmp_path / "cifar-10-batches-py" / "test_batch", tmp_path / "trace"
    path.write_bytes(pickle.dumps({"data": Hostile(trace)}, protocol))
    message = complaint(module("cifar10", tmp_path))
    assert str(path) in message and "tried to load " in message
    assert not trace.exists()
    pickle.loads(path.read_bytes())  # the ordinary reader does run it
    assert trace.exists()


@pytest.mark.parametrize("name", ["eval", "getattr", "__import__"])
def test_builtin_functions_are_refused_too(name: str, tmp_path: Path) -> None:
    official_files.cifar10(tmp_path)
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(f"c__builtin__\n{name}\n.".encode())
    assert f"tried to load __builtin__.{name}" in complaint(module("cifar10", tmp_path))


def test_empty_class_folder_is_named(tmp_path: Path) -> None:
    official_files.image_folder(tmp_path)
    (tmp_path / "hornet").mkdir()
    assert f"{tmp_path / 'hornet'} holds no images" in complaint(module("image_folder", tmp_path))


def test_validation_class_that_training_lacks_is_named(tmp_path: Path) -> None:
    for part in ("train", "val"):
        official_files.image_folder(tmp_path / part)
    official_files.image_file(tmp_path / "val" / "hornet" / "1.png", 8)
    assert f"{tmp_path / 'val' / 'hornet'} is a class that the training part lacks" in complaint(
        module("image_folder", tmp_path)
    )
    official_files.tiny_imagenet(tmp_path)
    table = tmp_path / "tiny-imagenet-200" / "val" / "val_annotations.txt"
    table.write_text(table.read_text() + "val_6.JPEG\tn99\t0\t0\t1\t1\n")
    assert f"{table} names the class n99" in complaint(module("tiny_imagenet", tmp_path))


def test_share_that_holds_out_nothing_is_refused(tmp_path: Path) -> None:
    official_files.image_folder(tmp_path)
    assert "takes 0 of 60 images" in complaint(module("image_folder", tmp_path, test_fraction=0.01))


def test_unknown_policy_of_timm_is_a_wrong_option(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="auto_augment=nope"):
        module("imagenet1k", tmp_path, auto_augment="nope")
