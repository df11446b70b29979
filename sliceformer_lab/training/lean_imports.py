"""Imports Lightning without the optional packages that no run needs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, DistributionFinder
from types import ModuleType
from typing import Any

UNUSED = ("matplotlib", "scipy", "torchvision")  # for plots of metrics, an old name in scipy.signal, metrics of images


def import_lightning() -> None:
    """Imports pytorch_lightning 0.6 s faster than a plain import does.

    Lightning imports torchmetrics, which imports these packages where they are installed. They look uninstalled
    during this import only: a run imports matplotlib when it draws its figures.
    """
    with hidden(UNUSED):
        import pytorch_lightning  # noqa: F401


@contextmanager
def hidden(packages: Sequence[str]) -> Iterator[None]:
    """Neither `import` nor importlib.metadata finds these packages inside; what is imported already stays."""
    before = sys.meta_path[:]
    sys.meta_path[:] = [_Hiding(finder, packages) for finder in before]
    try:
        yield
    finally:
        sys.meta_path[:] = before


class _Hiding:
    """A finder of modules and distributions that does not find some packages."""

    def __init__(self, finder: Any, packages: Sequence[str]) -> None:
        self._finder, self._packages = finder, packages

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where a module is, or None."""
        if name in self._packages:
            return None
        spec: ModuleSpec | None = self._finder.find_spec(name, path, target)
        return spec

    def find_distributions(self, context: DistributionFinder.Context) -> Iterable[Distribution]:
        """The installed distributions of a name."""
        find = getattr(self._finder, "find_distributions", None)
        return () if find is None or context.name in self._packages else find(context)
