"""Pickles from strangers: data files hold arrays of numbers and texts, and nothing else is built or called."""

from __future__ import annotations

import os
import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sliceformer_lab.data.pickles import load_arrays
from sliceformer_lab.errors import DataError

RECONSTRUCT: Any = np.empty(0).__reduce__()[0]  # in modules that have another name before NumPy 2
SCALAR: Any = np.float64(0).__reduce__()[0]


class Built:
    """Pickles as a call, with a state for what the call returns."""

    def __init__(self, call: Callable[..., object], *given: object, state: object = None) -> None:
        self.parts = (call, given) if state is None else (call, given, state)

    def __reduce__(self) -> Any:
        return self.parts


def kind(code: object, *state: object) -> Built:
    """A dtype with a state of its own: version, order, base, names, fields, size, alignment, flags."""
    return Built(np.dtype, code, False, True, state=state or (3, "|", None, None, None, -1, -1, 0))


def array(code: object, shape: object, content: object, *state: object) -> Built:
    return Built(RECONSTRUCT, np.ndarray, (0,), b"b", state=(1, shape, kind(code, *state), False, content))


POINTER = (0x4141414141414141).to_bytes(8, "little")
HOSTILE: dict[str, object] = {
    "objects": np.array([object], dtype=object),
    "objects with cleared flags": array("O8", (1,), POINTER, 3, "|", None, None, None, -1, -1, 0),
    "texts with the flags of objects": array("S8", (1,), POINTER, 3, "|", None, {"a": 1}, {}, 8, 1, 63),
    "a record with objects": array("V8", (1,), POINTER, 3, "|", None, ("a",), {"a": (np.dtype("O"), 0)}, 8, 1, 0),
    "fields outside a number": array("S1", (1,), b"x", 3, "|", None, ("a",), {"a": (np.dtype("f8"), 4096)}, 1, 1, 16),
    "a base type of objects": array("S8", (1,), POINTER, 3, "|", (np.dtype("O"), (1,)), None, None, 8, 1, 0),
    "a record": np.zeros(2, dtype=[("a", "f4")]),
    "raw bytes": np.zeros(2, dtype="V4"),
    "a type by its structure": array({"names": ["a"], "formats": ["O"]}, (1,), POINTER),
    "texts without a width": array("S0", (10**12,), b""),
    "more than the file holds": array("f8", (10**6,), b"12345678"),
    "a negative size": array("f8", (-1,), b"12345678"),
    "a size beyond the address space": array("f8", (2**62, 4), b"12345678"),
    "a list as content": array("f8", (1,), [1.0]),
    "an array by its address": Built(np.ndarray, (4,), "O8", POINTER * 4),
    "a buffer of objects": Built(np.frombuffer, POINTER, "O8"),
    "a bare type": np.dtype("f8"),
    "a shell command": Built(os.system, "touch it-ran"),
    "code": Built(eval, "open('it-ran', 'w')"),
    "a scalar of objects": Built(SCALAR, np.dtype("O"), pickle.dumps(print)),
    "a path": Path("x"),
    "a function of ours": load_arrays,
}


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_pickle_is_refused_by_name_and_runs_nothing(
    name: str, protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "data_batch_1"
    file.write_bytes(pickle.dumps({b"labels": [1], b"data": HOSTILE[name]}, protocol=protocol))
    with pytest.raises(DataError, match=r"data_batch_1 (holds|tried|is damaged)"):
        load_arrays(file)
    assert [path.name for path in tmp_path.iterdir()] == ["data_batch_1"]


@pytest.mark.parametrize(
    "content", [b"", b"\x80", b"\x80\x05.", b"not a pickle", b"cos\nsystem\n(S'touch it-ran'\ntR."]
)
def test_a_damaged_pickle_is_refused_by_name(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "batch").write_bytes(content)
    with pytest.raises(DataError, match="batch"):
        load_arrays(tmp_path / "batch")


def test_a_pickle_that_reserves_memory_is_refused(tmp_path: Path) -> None:
    for content in (
        b"\x80\x02]r\xff\xff\xff\x7f.",
        b"]p99999999999\n.",
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\x00\x00\x00x.",
    ):
        (tmp_path / "batch").write_bytes(content)
        with pytest.raises(DataError, match=r"batch is damaged"):
            load_arrays(tmp_path / "batch")


def test_a_value_that_occurs_a_billion_times_is_read_once(tmp_path: Path) -> None:
    value: list[object] = [np.arange(3)]
    for _ in range(40):
        value = [value, value]
    (tmp_path / "batch").write_bytes(pickle.dumps(value, protocol=4))
    assert load_arrays(tmp_path / "batch")[0][1] is not None


def test_every_byte_of_an_array_may_be_wrong_without_a_crash(tmp_path: Path) -> None:
    good = pickletools.optimize(pickle.dumps({"a": np.arange(3, dtype="<f4")}, protocol=4))
    file = tmp_path / "batch"
    for position in range(len(good)):
        for change in (0x01, 0x20, 0xFF):
            file.write_bytes(good[:position] + bytes([good[position] ^ change]) + good[position + 1 :])
            try:
                found = load_arrays(file)
            except DataError:
                continue
            assert repr(found)


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize(
    "value",
    [
        *(np.arange(6, dtype=code).reshape(2, 3) for code in ("u1", "<i8", ">i4", "<f8", ">f4", "c8")),
        *(np.array(["ab", "c"]), np.array([b"ab", b"c"]), np.zeros((0, 3)), np.array(3.5), np.array([True, False])),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
    ],
    ids=lambda value: f"{value.dtype.str}-{value.shape}",
)
def test_arrays_of_numbers_and_texts_are_read_as_pickle_reads_them(
    value: np.ndarray, protocol: int, tmp_path: Path
) -> None:
    file = tmp_path / "batch"
    file.write_bytes(pickle.dumps([value, {"again": (value, value.T)}], protocol=protocol))
    read = load_arrays(file)
    for found, expected in ((read[0], value), (read[1]["again"][1], value.T)):
        assert type(found) is np.ndarray and found.dtype == expected.dtype.newbyteorder(found.dtype.byteorder)
        np.testing.assert_array_equal(found, expected)
