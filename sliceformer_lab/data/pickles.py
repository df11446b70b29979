"""Reads pickles of numpy arrays and plain values; refuses any other content before it runs."""

from __future__ import annotations

import pickle
import pickletools
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from sliceformer_lab.errors import DataError

# Containers, strings and numbers have opcodes of their own; arrays of any numpy version are built by four calls.
_ARRAY_MODULES = {"numpy"} | {
    f"numpy.{core}.{name}" for core in ("core", "_core") for name in ("multiarray", "numeric")
}


class _Kind:
    """A dtype as a pickle describes it. numpy's own would take its flags and fields from the file, unchecked."""

    def __init__(self, code: str, align: bool = False, copy: bool = False) -> None:
        del align, copy
        self.dtype = np.dtype(code)
        if self.dtype.kind not in "biufcSU" or not self.dtype.itemsize:
            raise DataError(f"holds an array of {self.dtype}, where only numbers and texts belong")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, order, *structure = state
        if any(structure[:3]) or order not in ("<", ">", "|", "="):  # a base type, names, fields
            raise DataError("holds an array of records, where only numbers and texts belong")
        self.dtype = self.dtype.newbyteorder(order)  # and not the sizes and flags that follow


class _Array(np.ndarray):
    """An array while a pickle is read. Its state is checked: numpy's own would take a dtype with any flags."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        version, shape, kind, in_columns, content = state
        if not isinstance(kind, _Kind) or not isinstance(content, bytes | str):
            raise DataError("holds an array without numbers")
        super().__setstate__((version, shape, kind.dtype, in_columns, content))  # type: ignore[arg-type]  # Python 2's text


def _reconstruct(array: object, shape: object, kind: object) -> _Array:
    """An empty array, whose state follows in the pickle."""
    del array, shape, kind
    return _Array((0,), np.int8)


def _frombuffer(content: bytes, kind: _Kind, shape: tuple[int, ...], order: str) -> np.ndarray:
    """An array of protocol 5."""
    return np.frombuffer(content, kind.dtype).reshape(shape, order=order)  # type: ignore[call-overload, no-any-return]


_NDARRAY = object()  # for `numpy.ndarray`, which a pickle names but need not call
_CALLS: dict[str, Any] = {"ndarray": _NDARRAY, "dtype": _Kind, "_reconstruct": _reconstruct, "_frombuffer": _frombuffer}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module in _ARRAY_MODULES and name in _CALLS:
            return _CALLS[name]
        raise DataError(f"tried to load {module}.{name}, which no data file needs; nothing of it was run")


def load_arrays(path: Path) -> Any:
    """The content of a pickle of numpy arrays of numbers and texts, and of plain values, by Python 2 or 3.

    Raises DataError naming the file if it is damaged or holds anything else.
    """
    try:
        content = path.read_bytes()
        _check_places(content)
        return _with_plain_arrays(
            _ArrayUnpickler(BytesIO(content), encoding="latin1").load(), {}
        )  # Python 2 arrays need latin1
    except DataError as error:
        raise DataError(f"{path} {error}") from None
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise DataError(
            f"{path} is damaged ({type(error).__name__}: {error}); delete it and download it again"
        ) from error


def _check_places(content: bytes) -> None:
    """Raises DataError for a pickle that would reserve memory without filling it.

    Each value to be used again is stored at the next free place; a place far beyond reserves all places before it.
    Content that is shorter than it says raises ValueError here.
    """
    for step, (opcode, place, _) in enumerate(pickletools.genops(content)):
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and place > step + 1:  # type: ignore[operator]
            raise DataError(f"is damaged (value {place} follows after {step} steps); delete it and download it again")


def _with_plain_arrays(content: Any, done: dict[int, Any]) -> Any:
    """The content with numpy's own arrays; `done` holds what was converted, as a value may occur many times."""
    if id(content) not in done:
        done[id(content)] = _convert(content, done)
    return done[id(content)]


def _convert(content: Any, done: dict[int, Any]) -> Any:
    match content:
        case _Array():
            return content.view(np.ndarray)
        case dict():
            return {key: _with_plain_arrays(value, done) for key, value in content.items()}
        case list() | tuple():
            return type(content)(_with_plain_arrays(value, done) for value in content)
        case None | bool() | int() | float() | complex() | str() | bytes() | np.ndarray():
            return content
        case _:
            raise DataError(f"holds a {type(content).__name__}, where only arrays and plain values belong")
