"""Reads pickles of numpy arrays and plain values; refuses any other content before it runs."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from sliceformer_lab.errors import DataError

# Containers, strings and numbers have opcodes of their own; arrays of any numpy version are built by these calls.
_ARRAY_CALLS: dict[str, Any] = {
    "ndarray": np.ndarray,
    "dtype": np.dtype,
    "_reconstruct": np.empty(0).__reduce__()[0],  # protocols up to 4
    "_frombuffer": np.empty(0).__reduce_ex__(5)[0],
}
_ARRAY_MODULES = {"numpy"} | {
    f"numpy.{core}.{name}" for core in ("core", "_core") for name in ("multiarray", "numeric")
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module in _ARRAY_MODULES and name in _ARRAY_CALLS:
            return _ARRAY_CALLS[name]
        raise DataError(f"tried to load {module}.{name}, which no data file needs; nothing of it was run")


def load_arrays(path: Path) -> Any:
    """The content of a pickle of numpy arrays and plain values, written by Python 2 or 3.

    Raises DataError naming the file if it is damaged or holds anything else.
    """
    try:
        with path.open("rb") as file:
            return _ArrayUnpickler(file, encoding="latin1").load()  # Python 2 arrays need latin1
    except DataError as error:
        raise DataError(f"{path} {error}") from None
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise DataError(
            f"{path} is damaged ({type(error).__name__}: {error}); delete it and download it again"
        ) from error
