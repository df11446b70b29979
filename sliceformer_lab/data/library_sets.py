"""Data sets that a library downloads and reads, by the name of their class."""

from __future__ import annotations

import difflib
import inspect
import re
from typing import Any

from sliceformer_lab.errors import DataError

PlainOptions = dict[str, str | int | float | bool]  # keywords of a library's class


def class_of_library(module: Any, name: str, where: str) -> Any:
    """The class `name` of a library's module of data sets. Raises DataError with the nearest names."""
    names = [each for each in dir(module) if inspect.isclass(getattr(module, each)) and not each.startswith("_")]
    if name in names:
        return getattr(module, name)
    near = difflib.get_close_matches(name, names, n=4, cutoff=0.4)
    hint = f"; near it are {', '.join(near)}" if near else ""
    raise DataError(f"data.dataset={name} is no class of {where}{hint}")


def describe_set(kind: Any, where: str) -> str:
    """Where a set comes from: its class, and what that says of itself before its arguments, with paper and page."""
    text = re.split(r"\n\s*(?:Args:|\.\. |\*\*STATS)", inspect.getdoc(kind) or "")[0]
    linked = re.sub(r"`{1,2}([^`<]+?)\s*<([^>]+)>`_{0,2}", r"\1 (\2)", text)  # a link of reStructuredText
    plain = re.sub(r":\w+:`([^`]+)`|`{1,2}([^`]+)`{1,2}", lambda found: found[1] or found[2], linked)
    return f"{where}.{kind.__name__}: {' '.join(plain.split())}"
