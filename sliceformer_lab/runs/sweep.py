"""The jobs of a sweep, from Hydra's configuration of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser

SWEEP = "multirun.yaml"  # in the folder of a sweep: Hydra's record of it
SELECTS_ROWS = ("recipe", "attention")  # on the command line of a study with rows, these keys select among them


def planned_jobs(hydra: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The overrides of each job of a sweep, from Hydra's node: what its study runs, and the command line.

    Each row of a study is combined with everything else that is swept. Raises KeyError or Hydra's errors where the
    node is not that of a sweep.
    """
    swept = (hydra.get("sweeper") or {}).get("params") or {}
    rows = ((hydra.get("callbacks") or {}).get("plan") or {}).get("rows")
    given = [word for word in hydra["overrides"]["task"] if rows is None or override_key(word) not in SELECTS_ROWS]
    parser = OverridesParser.create()
    jobs: list[tuple[str, ...]] = []
    for row in [""] if rows is None else rows:
        words = [*row.split(), *(f"{key}={value}" for key, value in swept.items()), *given]
        jobs += map(tuple, BasicSweeper.split_arguments(parser.parse_overrides(words), None)[0])
    return jobs


def override_key(override: str) -> str:
    """The key of an override such as `+data.root=FOLDER`."""
    return override.lstrip("+~").partition("=")[0]
