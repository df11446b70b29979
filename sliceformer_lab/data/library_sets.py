"""Data sets that a library downloads and reads, by the name of their class."""

# No `from __future__ import annotations` in data modules; `data.base` says why.

import difflib
import inspect
import re
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from sliceformer_lab.data.base import DataModule
from sliceformer_lab.errors import DataError, LabError, NetworkError, machine_error


@dataclass(kw_only=True, eq=False, repr=False)
class LibraryData(DataModule):
    """The set that the class `dataset` of a library downloads and reads; `options` are its further keywords."""

    library: ClassVar[str]  # the module of its classes

    dataset: str
    options: dict[str, str | int | float | bool] | None = None

    @cached_property
    def library_class(self) -> Any:
        """The class `dataset`. Raises DataError with the nearest names."""
        module = import_module(self.library)  # takes seconds
        names = [each for each in dir(module) if inspect.isclass(getattr(module, each)) and not each.startswith("_")]
        if self.dataset in names:
            return getattr(module, self.dataset)
        near = difflib.get_close_matches(self.dataset, names, n=4, cutoff=0.4)
        hint = f"; near it are {', '.join(near)}" if near else ""
        raise DataError(f"data.dataset={self.dataset} is no class of {self.library}{hint}")

    def about(self) -> str:
        """The class, and what that says of itself before its arguments, with paper and page."""
        text = re.split(r"\n\s*(?:Args:|\.\. |\*\*STATS)", inspect.getdoc(self.library_class) or "")[0]
        linked = re.sub(r"`{1,2}([^`<]+?)\s*<([^>]+)>`_{0,2}", r"\1 (\2)", text)  # a link of reStructuredText
        plain = re.sub(r":\w+:`([^`]+)`|`{1,2}([^`]+)`{1,2}", lambda found: found[1] or found[2], linked)
        return f"{self.library}.{self.library_class.__name__}: {' '.join(plain.split())}"


def unread_set(error: Exception, place: Path, library: str, advice: str) -> LabError:
    """The error of a set that a library can neither download nor read; `advice` says what helps without network.

    A limit of the machine such as a full disk is itself; a failed connection gets the advice.
    """
    limit = machine_error(error)
    if limit is not None and not isinstance(limit, NetworkError):
        return limit
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    return DataError(f"{place} cannot be downloaded or read by {library} ({reason}); without network, {advice}")
