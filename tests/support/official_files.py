"""Writes miniature data sets in their official formats, so that tests need neither network nor fake data modes.

`IMAGE_SETS[name](root)` writes what `task=name data.root=ROOT data.verify=false` reads.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sliceformer_lab.data.download import OfficialFile


def official(path: Path) -> OfficialFile:
    """The description of a local file as a published one."""
    return OfficialFile(path.as_uri(), hashlib.md5(path.read_bytes()).hexdigest(), path.stat().st_size)


def mnist(root: Path, packed: bool = True) -> None:
    raw = root / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for prefix, count in (("train", 60), ("t10k", 20)):
        pixels = _pixels(count, 28 * 28)
        images = struct.pack(">IIII", 0x803, count, 28, 28) + pixels.tobytes()
        labels = struct.pack(">II", 0x801, count) + bytes(i % 10 for i in range(count))
        for name, content in ((f"{prefix}-images-idx3-ubyte", images), (f"{prefix}-labels-idx1-ubyte", labels)):
            (raw / f"{name}.gz" if packed else raw / name).write_bytes(gzip.compress(content) if packed else content)


def fashion_mnist(root: Path) -> None:
    """The files of MNIST where torchvision looks for those of Fashion-MNIST."""
    mnist(root, packed=False)
    (root / "MNIST").rename(root / "FashionMNIST")


def cifar10(root: Path, protocol: int | None = None) -> None:
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        _cifar_batch(root / "cifar-10-batches-py" / name, "labels", 10, protocol)


def cifar100(root: Path, protocol: int | None = None) -> None:
    for name in ("train", "test"):
        _cifar_batch(root / "cifar-100-python" / name, "fine_labels", 20, protocol, count=200)


def tiny_imagenet(root: Path) -> None:
    folder = root / "tiny-imagenet-200"
    for name in ("n01443537", "n01629819"):
        for i in range(10):
            image_file(folder / "train" / name / "images" / f"{name}_{i}.JPEG", 64)
    rows = [f"val_{i}.JPEG\t{('n01443537', 'n01629819')[i % 2]}\t0\t32\t44\t62\n" for i in range(6)]
    for i in range(6):
        image_file(folder / "val" / "images" / f"val_{i}.JPEG", 64)
    (folder / "val" / "val_annotations.txt").write_text("".join(rows))


def imagenet1k(root: Path) -> None:
    for part, count in (("train", 50), ("val", 3)):
        _class_folders(root / part, ("n01440764", "n01443537"), count, "JPEG")


def dogs_vs_cats(root: Path) -> None:
    for name in ("cat", "dog"):
        for i in range(25):
            image_file(root / "train" / f"{name}.{i}.jpg", 40)


def png(width: int, height: int, pixels: bytes = b"", depth: int = 8, colour: int = 0) -> bytes:
    """A PNG file with a head of its own, as Pillow does not write it."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")


def image_folder(root: Path) -> None:
    _class_folders(root, ("ant", "bee", "wasp"), 20, "png")


def image_table(root: Path, count: int = 40) -> Path:
    """A table of grey pictures with a class, labels, and their brightness, which is missing once."""
    root.mkdir(parents=True, exist_ok=True)
    rows = ["image,label,tags,brightness"]
    for number in range(count):
        grey = 5 * number + 10
        Image.fromarray(np.full((16, 20, 3), grey, dtype=np.uint8)).save(root / f"{number}.png")
        tags = ";".join([*(["dark"] if grey < 120 else []), *(["even"] if number % 2 == 0 else [])])
        rows.append(f"{number}.png,{'ab'[number % 2]},{tags},{grey if number else ''}")
    table = root / "images.csv"
    table.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return table


def mask_folder(root: Path, count: int = 30, size: tuple[int, int] = (24, 32)) -> None:
    """Images with a dark and a bright half, whose masks say which is which; the first column has no class (255)."""
    (root / "masks").mkdir(parents=True)
    (root / "images").mkdir()
    (root / "classes.txt").write_text("dark\nbright\n")
    height, width = size
    for i in range(count):
        mask = np.zeros((height, width), dtype=np.uint8)
        mask[:, : (i % 3 + 1) * width // 4] = 1
        noise = _pixels(height * width, 3).reshape(height, width, 3) // 4
        mask[:, 0] = 255
        Image.fromarray(noise + 150 * (mask[..., None] > 0).astype(np.uint8)).save(root / "images" / f"{i}.jpg")
        Image.fromarray(mask).save(root / "masks" / f"{i}.png")


def listops(root: Path) -> None:
    """Rows in the notation of the published generator, which nests brackets to the left."""
    root.mkdir(parents=True, exist_ok=True)
    for stage, count in (("train", 40), ("val", 10), ("test", 10)):
        rows = [f"( ( ( [SM {i % 10} ) {i // 10} ) ] )\t{(i % 10 + i // 10) % 10}" for i in range(count)]
        (root / f"basic_{stage}.tsv").write_text("\n".join(["Source\tTarget", *rows]) + "\n")


def aan_pairs(root: Path) -> None:
    """Rows of label, two ids and two texts; papers that cite each other share a topic."""
    root.mkdir(parents=True, exist_ok=True)
    texts = [f"{('parsing', 'speech')[i % 2]} of naïve \u201ctexts\u201d " * (i + 1) for i in range(6)]
    for part, count in (("train", 40), ("eval", 10), ("test", 10)):
        pairs = [(i % 6, (i + 1 + i // 3) % 6) for i in range(count)]
        rows = [f"{float(a % 2 == b % 2)}\tP{a}\tP{b}\t{texts[a]}\t{texts[b]}\n" for a, b in pairs]
        (root / f"new_aan_pairs.{part}.tsv").write_text("".join(rows), encoding="utf-8")


def aclimdb(root: Path) -> None:
    """Reviews of 1 to 24 words, some with HTML and other alphabets, in files named by number and rating."""
    words = {"pos": ("wonderful", "naïve", "映画", "<br />"), "neg": ("dreadful", "boring", "plot", "[PAD]")}
    for part, label in product(("train", "test"), words):
        (root / "aclImdb" / part / label).mkdir(parents=True)
        for i in range(24):
            text = " ".join([words[label][i % 4], *(f"film{j % 7}" for j in range(i))])
            (root / "aclImdb" / part / label / f"{i}_{9 if label == 'pos' else 2}.txt").write_text(text, "utf-8")


def book(root: Path) -> Path:
    """A text of 1,400 characters."""
    root.mkdir(parents=True, exist_ok=True)
    path = root / "book.txt"
    path.write_text("".join(f"Line {i} of a naïve book,\nnot a long one.\n" for i in range(35)), encoding="utf-8")
    return path


def texts(root: Path, separator: str = ",") -> Path:
    """A table of 60 texts of three classes, as a spreadsheet saves it."""
    root.mkdir(parents=True, exist_ok=True)
    path = root / ("texts.csv" if separator == "," else "texts.tsv")
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerow(["text", "label", "part"])
        for i in range(60):
            label = ("good", "bad", "so-so")[i % 3]
            text = f'{label} "naïve" film,\nseen\tagain ' * (1 + i % 5)
            writer.writerow([text, label, "test" if i % 5 == 4 else "train"])
    return path


IMAGE_SETS: dict[str, Callable[[Path], None]] = {
    "mnist": mnist,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "tiny_imagenet": tiny_imagenet,
    "imagenet1k": imagenet1k,
    "dogs_vs_cats": dogs_vs_cats,
    "image_folder": image_folder,
}


def packed_tar(folder: Path, archive: Path) -> Path:
    """`folder` as an archive that unpacks to a folder of its name."""
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, folder.name)
    return archive


def packed_zip(folder: Path, archive: Path) -> Path:
    with zipfile.ZipFile(archive, "w") as packed:
        for path in sorted(folder.rglob("*")):
            packed.write(path, path.relative_to(folder.parent))
    return archive


def image_file(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(_pixels(size * (size + 8), 3).reshape(size, size + 8, 3)).save(path)


def _class_folders(root: Path, names: tuple[str, ...], count: int, ending: str) -> None:
    for name in names:
        for i in range(count):
            image_file(root / name / f"{name}_{i}.{ending}", 48)


def _pixels(*shape: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(sum(shape)).integers(0, 256, shape, dtype=np.uint8)


def _cifar_batch(path: Path, key: str, classes: int, protocol: int | None, count: int = 20) -> None:
    pixels, labels = _pixels(count, 3072), [i % classes for i in range(count)]
    path.parent.mkdir(parents=True, exist_ok=True)
    if protocol is None:
        path.write_bytes(python2_pickle(key, pixels, labels))
    else:
        path.write_bytes(pickle.dumps({"data": pixels, key: labels}, protocol))


def python2_pickle(key: str, pixels: np.ndarray[Any, np.dtype[np.uint8]], labels: list[int]) -> bytes:
    """The opcodes with which Python 2, and so the official files, wrote {"data": pixels, key: labels}."""

    def string(text: str) -> bytes:
        return b"U" + bytes([len(text)]) + text.encode()  # SHORT_BINSTRING: bytes or text, the reader decides

    def integer(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    content = pixels.tobytes()
    empty = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + integer(0) + b"\x85" + string("b") + b"tR"
    dtype = b"cnumpy\ndtype\n(" + string("u1") + integer(0) + integer(1) + b"tR"
    dtype += b"(" + integer(3) + string("|") + b"NNN" + integer(-1) + integer(-1) + integer(0) + b"tb"
    shape = b"(" + integer(pixels.shape[0]) + integer(pixels.shape[1]) + b"t"
    state = b"(" + integer(1) + shape + dtype + b"\x89T" + struct.pack("<i", len(content)) + content + b"t"
    array = string("data") + empty + state + b"b"
    numbers = string(key) + b"](" + b"".join(integer(label) for label in labels) + b"e"
    return b"\x80\x02}(" + array + numbers + b"u."
