"""Hostile and damaged files: each is refused in one sentence that names it, quickly, and nothing is left."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.official_files import png

from sliceformer_lab.data import archives, table_files
from sliceformer_lab.data.archives import unpack
from sliceformer_lab.data.images.picture_files import open_picture
from sliceformer_lab.data.table_files import table_rows
from sliceformer_lab.errors import DataError


def tar_of(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for member, content in members:
            member.size = len(content) if member.isreg() else 0
            tar.addfile(member, io.BytesIO(content))


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


def zipped(path: Path, content: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in content.items():
            packed.writestr(name, data)


def lying_zip(path: Path) -> None:
    """A member that unpacks to more than its head says."""
    zipped(path, {"set/a": bytes(1_000_000)})
    data = path.read_bytes()
    path.write_bytes(data.replace(struct.pack("<I", 1_000_000), struct.pack("<I", 10)))


def encrypted_zip(path: Path) -> None:
    zipped(path, {"set/a": b"secret"})
    data = bytearray(path.read_bytes())
    data[6] |= 1  # the flag in the local head and in the directory
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(bytes(data))


ARCHIVES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a path upwards": (lambda p: tar_of(p, (member("../escaped"), b"x")), "damaged"),
    "an absolute path": (lambda p: tar_of(p, (member(f"{p.parent.parent}/escaped"), b"x")), "holds no folder set"),
    "a link to outside": (lambda p: tar_of(p, (member("set", tarfile.SYMTYPE, "/etc"), b"")), "damaged"),
    "a hard link to outside": (lambda p: tar_of(p, (member("set/a", tarfile.LNKTYPE, "../../x"), b"")), "damaged"),
    "a device": (lambda p: tar_of(p, (member("set/a", tarfile.CHRTYPE), b"")), "damaged"),
    "a bomb, tar": (lambda p: tar_of(p, (member("set/a"), bytes(3_000_000))), "more than 1,0"),
    "a bomb, zip": (lambda p: zipped(p, {"set/a": bytes(3_000_000)}), "more than 1,0"),
    "many small bombs": (lambda p: zipped(p, {f"set/{i}": bytes(100_000) for i in range(30)}), "more than 1,"),
    "a size that lies": (lying_zip, "damaged"),
    "a password": (encrypted_zip, "damaged"),
    "another folder": (lambda p: zipped(p, {"other/a": b"x"}), "holds no folder set"),
    "a file for the folder": (lambda p: zipped(p, {"set": b"x"}), "holds no folder set"),
    "nothing": (lambda p: p.write_bytes(b""), "damaged"),
    "a web page": (lambda p: p.write_bytes(b"<!doctype html><title>Sign in</title>"), "damaged"),
}


@pytest.mark.parametrize("kind", ARCHIVES)
def test_a_hostile_archive_leaves_nothing(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_UNPACKED_BYTES", 1_000_000)
    make, complaint = ARCHIVES[kind]
    folder = tmp_path / "data"
    folder.mkdir()
    make(folder / "set.archive")
    with pytest.raises(DataError, match=complaint) as refused:
        unpack(folder / "set.archive", folder / "set")
    assert str(folder / "set.archive") in str(refused.value) and "\n" not in str(refused.value)
    assert [path.name for path in tmp_path.rglob("*")] == ["data", "set.archive"]


GREY = np.linspace(0, 65535, 64 * 64).reshape(64, 64)

PICTURES: dict[str, tuple[Callable[[Path], object], str]] = {
    "16 bits.png": (lambda p: Image.fromarray(GREY.astype(np.uint16)).save(p), "grey values of 16 bits"),
    "16 bits.tif": (lambda p: Image.fromarray(GREY.astype(np.uint16)).save(p), "grey values of 16 bits"),
    "32 bits.tif": (lambda p: Image.fromarray(GREY.astype(np.int32)).save(p), "grey values of 32 bits"),
    "nan.tif": (lambda p: Image.fromarray(np.full((8, 8), np.nan, np.float32)).save(p), "floating-point numbers"),
    "bomb.png": (lambda p: p.write_bytes(png(60_000, 60_000)), "decompression bomb"),
    "size of nothing.png": (lambda p: p.write_bytes(png(0, 8)), "cannot be read as an image"),
    "no pixels.png": (lambda p: p.write_bytes(png(8, 8)), "cannot be read as an image"),
    "cut off.png": (lambda p: p.write_bytes(png(8, 8, bytes(72))[:40]), "cannot be read as an image"),
    "empty.png": (
        lambda p: p.write_bytes(b""),
        r"cannot be read as an image \(of no known format\); replace or delete",
    ),
    "a folder.png": (lambda p: p.mkdir(), "cannot be read as an image"),
    "text.gif": (lambda p: p.write_text("GIF89a but not really"), "cannot be read as an image"),
    "noise.jpg": (lambda p: p.write_bytes(b"\xff\xd8\xff" + bytes(range(256))), "cannot be read as an image"),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_hostile_picture_is_refused_by_name(name: str, tmp_path: Path) -> None:
    make, complaint = PICTURES[name]
    make(tmp_path / name)
    with pytest.raises(DataError, match=complaint) as refused, open_picture(tmp_path / name) as image:
        image.convert("RGB")
    assert str(tmp_path / name) in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(("depth", "colour", "bytes_each"), [(16, 2, 6), (16, 6, 8), (8, 2, 3)])
def test_colours_of_16_bits_are_scaled(depth: int, colour: int, bytes_each: int, tmp_path: Path) -> None:
    values = np.arange(0, 256, dtype=np.uint8).repeat(bytes_each)  # 0x0000, 0x0101, ...
    (tmp_path / "colour.png").write_bytes(png(256, 1, b"\0" + values.tobytes(), depth, colour))
    with open_picture(tmp_path / "colour.png") as image:
        np.testing.assert_array_equal(np.asarray(image.convert("RGB"))[0, :, 0], np.arange(256))


TABLES: dict[str, tuple[Callable[[Path], object], str]] = {
    "field.csv": (lambda p: p.write_text("text,label\n" + "x" * 11_000_000 + ",1\n"), "line 2: a field has more than"),
    "quote.csv": (lambda p: p.write_text('text,label\n"' + "x,1\n" * 3_000_000), "a field has more than"),
    "line.jsonl": (lambda p: p.write_text('{"text": "' + "x" * 11_000_000 + '"}'), "line 1 has more than"),
    "bomb.csv.gz": (lambda p: p.write_bytes(gzip.compress(bytes(5_000_000))), "unpacks to more than"),
    "deep.jsonl": (lambda p: p.write_text("[" * 200_000), "line 1"),
    "cut.csv.gz": (lambda p: p.write_bytes(gzip.compress(b"text,label\na,1\n")[:-9]), "is damaged"),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_hostile_table_is_refused_quickly(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "MAX_UNPACKED_BYTES", 1_000_000)
    make, complaint = TABLES[name]
    make(tmp_path / name)
    start = time.monotonic()
    with pytest.raises(DataError, match=complaint) as refused:
        list(table_rows(tmp_path / name))
    assert str(tmp_path / name) in str(refused.value) and len(str(refused.value)) < 400
    assert time.monotonic() - start < 3
