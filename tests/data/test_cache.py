"""Cache folders are complete or made again, once for all processes."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support import task_modules

from sliceformer_lab.data import cache
from sliceformer_lab.data.cache import by_name, cached_folder, content_digest, digest_of_stamps, manifest
from sliceformer_lab.errors import DataError

KEY = {"length": 3, "files": {"a.txt": [1, 2]}, "names": ("x", "y")}


def builder(calls: list[Path]) -> Callable[[Path], None]:
    """Writes two files and remembers that it was asked to."""

    def build(folder: Path) -> None:
        calls.append(folder)
        (folder / "numbers.bin").write_bytes(bytes(range(10)))
        (folder / "words.txt").write_text("words")

    return build


def test_another_key_name_or_layout_is_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Path] = []
    folders = {
        cached_folder(tmp_path, "set", KEY, builder(calls)),
        cached_folder(tmp_path, "set", KEY | {"length": 4}, builder(calls)),
        cached_folder(tmp_path, "other", KEY, builder(calls)),
    }
    assert len(folders) == len(calls) == 3
    reordered = dict(reversed(list(KEY.items())))
    assert cached_folder(tmp_path, "set", reordered, builder(calls)) in folders and len(calls) == 3
    monkeypatch.setattr(cache, "CACHE_VERSION", cache.CACHE_VERSION + 1)
    assert cached_folder(tmp_path, "set", KEY, builder(calls)) not in folders and len(calls) == 4


@pytest.mark.parametrize(
    "damage",
    {
        "a file is missing": lambda folder: (folder / "words.txt").unlink(),
        "a file is cut off": lambda folder: (folder / "numbers.bin").write_bytes(b"123"),
        "a file has other content": lambda folder: (folder / "numbers.bin").write_bytes(bytes(10)),
        "no manifest": lambda folder: (folder / "manifest.json").unlink(),
        "half a manifest": lambda folder: (folder / "manifest.json").write_text('{"key": '),
        "a manifest of something else": lambda folder: (folder / "manifest.json").write_text("[1]"),
        "made from another key": lambda folder: (folder / "manifest.json").write_text(
            json.dumps(manifest(folder) | {"key": {"cache_version": 0}})
        ),
    }.items(),
    ids=lambda damage: damage[0],
)
def test_a_damaged_folder_is_made_again(
    damage: tuple[str, Callable[[Path], None]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[Path] = []
    folder = cached_folder(tmp_path, "set", KEY, builder(calls))
    before = content_digest(folder)
    damage[1](folder)
    (killed := folder.with_name(folder.name + ".unfinished")).mkdir()
    (killed / "half").touch()  # left by a build that was killed
    caplog.set_level("INFO")
    assert cached_folder(tmp_path, "set", KEY, builder(calls)) == folder
    assert len(calls) == 2 and "incomplete, changed or of another version; making it again" in caplog.text
    assert content_digest(folder) == before and set(manifest(folder)["files"]) == {"numbers.bin", "words.txt"}


@pytest.mark.parametrize("error", [DataError("damaged"), RuntimeError("a mistake"), KeyboardInterrupt()])
def test_a_build_that_fails_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    def fails(folder: Path) -> None:
        (folder / "part1").write_text("first")
        raise error

    with pytest.raises(type(error)):
        cached_folder(tmp_path, "set", KEY, fails)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_two_processes_at_once_make_a_folder_once(tmp_path: Path) -> None:
    def build(folder: Path) -> None:
        (tmp_path / f"built by {os.getpid()}").touch()
        time.sleep(0.5)
        (folder / "words.txt").write_text("words")

    fork = multiprocessing.get_context("fork")
    both = [fork.Process(target=lambda: cached_folder(tmp_path / "parent", "set", KEY, build)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(30)
    assert [process.exitcode for process in both] == [0, 0]
    assert len(list(tmp_path.glob("built by *"))) == 1


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"file.*cannot be written.*data\.root"):
        cached_folder(tmp_path / "file", "set", KEY, builder([]))


def test_a_folder_is_known_by_the_content_of_its_files(tmp_path: Path) -> None:
    files = {name: tmp_path / name / "a.txt" for name in ("one", "copy", "two")}
    folders = {}
    for name, file in files.items():
        file.parent.mkdir()
        file.write_text("neg pos" if name == "two" else "pos neg")
        os.utime(file, ns=(10**18, 10**18))
        folders[name] = cached_folder(tmp_path / "parent", "set", {"files": by_name([file])}, builder([]))
    assert folders["one"] == folders["copy"] != folders["two"]
    assert content_digest(folders["one"]) == content_digest(folders["two"])  # of what was made, whatever the key

    def with_another_file(name: str, folder: Path) -> None:
        builder([])(folder)
        (folder / name).write_text("other words")

    digests = {
        name: content_digest(cached_folder(tmp_path, name, KEY, partial(with_another_file, name)))
        for name in ("words.txt", "identity_places")  # the latter says where examples come from
    }
    assert digests["words.txt"] != digests["identity_places"] == content_digest(folders["one"])
    before = digest_of_stamps([files["one"]])
    assert digest_of_stamps([files["one"].parent.rename(tmp_path / "class") / "a.txt"]) != before


@pytest.mark.parametrize("changes", [["edited.txt"], ["edited.txt", "further.txt"]])
def test_files_that_change_while_they_are_read_make_no_cache(changes: list[str], tmp_path: Path) -> None:
    (tmp_path / "edited.txt").write_text("pos neg")
    by_stamps = {"files": lambda: digest_of_stamps(sorted(tmp_path.glob("*.txt")))}
    key = by_stamps if "further.txt" in changes else {"files": by_name([tmp_path / "edited.txt"])}

    def edit_or_add(name: str, folder: Path) -> None:
        (folder / "half").touch()
        (tmp_path / name).write_text("neg pos")

    for name in changes:
        with pytest.raises(DataError, match="the files of set have changed while they were read; start again"):
            cached_folder(tmp_path / "parent", "set", key, partial(edit_or_add, name))
    folder = cached_folder(tmp_path / "parent", "set", key, builder([]))
    assert set(manifest(folder)["files"]) == {"numbers.bin", "words.txt"}


def test_the_digest_of_a_large_file_is_remembered_until_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    monkeypatch.setattr(cache, "LARGE", 0)
    monkeypatch.setattr(cache, "SETTLED", -1.0)
    monkeypatch.setattr(cache, "digest_of", lambda file: (read.append(file), file.read_text())[1])
    file = tmp_path / "large.txt"
    file.write_text("pos neg")
    os.utime(file, ns=(10**18, 10**18))
    assert [cache.file_digest(file, tmp_path) for _ in range(2)] == ["pos neg"] * 2 and len(read) == 1
    time.sleep(0.05)  # longer than the clock of the disk takes to tick
    file.write_text("neg pos")
    os.utime(file, ns=(10**18, 10**18))
    assert cache.file_digest(file, tmp_path) == "neg pos"
    (second := tmp_path / "second.txt").write_text("pos")
    assert [cache.file_digest(second, tmp_path) for _ in range(2)] == ["pos"] * 2 and read[-2:] == [file, second]
    monkeypatch.setattr(cache, "SETTLED", 3600.0)  # a clock may not tick between two writes
    (new := tmp_path / "new.txt").write_text("pos")
    assert [cache.file_digest(new, tmp_path) for _ in range(2)] == ["pos"] * 2 and read[-2:] == [new, new]


MADE_BY: dict[str, dict[str, Any]] = {  # another value of an option of a task's data that decides what its cache holds
    "text_csv": {
        **{"text_column": "other", "label_column": "other", "labels_separator": ";", "targets": ["other"]},
        **{"split_column": "other", "header": False, "quotes": False, "tokens": "bytes", "vocab_size": 301},
        **{"split_seed": 1, "test_fraction": 0.2, "val_fraction": 0.2},
    },
    "imdb": {"partition": "published", "vocab_size": 301, "split_seed": 1, "val_fraction": 0.2},
    "lra_listops": {"generator_seed": 1, "min_len": 6, "max_len": 41, "num_train": 61, "num_val": 11, "num_test": 11},
    "lra_pathfinder": {"generator_seed": 1, "difficulty": "intermediate", "num_distractors": 1, "num_examples": 30},
    "molecule_csv": {
        **{"smiles_column": "other", "targets": ["other"], "split_column": "other", "descriptors": "both"},
        **{"max_nodes": 7, "invalid": "error"},
    },
    "peptides_func": {"laplacian": 3, "random_walk": 3, "max_nodes": 7, "invalid": "error"},
    "zinc": {"subset": False, "max_nodes": 7, "invalid": "error"},
    "mask_folder": {"height": 40, "width": 40, "values": [0, 1], "ignore": 254},
    "point_folder": {"num_points": 8},
    "modelnet40": {"num_points": 8},
}


@pytest.mark.parametrize("task", MADE_BY)
def test_data_with_another_option_that_decides_their_cache_are_in_another_folder(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KnownError(Exception):
        """The folder is known, and nothing is read."""

    def know(parent: Path, name: str, key: dict[str, Any], *_: object, **__: object) -> Path:
        folders.append(f"{name} {cache._with_digests(key, parent)}")
        raise KnownError

    folders: list[str] = []
    others = [{name: value} for name, value in MADE_BY[task].items()]
    if (write := task_modules.SMALL[task].write) is not None:
        write(tmp_path)
    for options in ({}, {}, *others):
        data = task_modules.module(task, tmp_path, **options)
        monkeypatch.setitem(type(data).prepare.__globals__, "cached_folder", know)  # type: ignore[attr-defined]
        with pytest.raises(KnownError):
            data.prepare()  # type: ignore[attr-defined]
    assert folders[0] == folders[1]
    assert [option for option, folder in zip(others, folders[2:], strict=True) if folder == folders[0]] == []
