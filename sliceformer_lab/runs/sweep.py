"""Reads the jobs of a sweep from the configuration that Hydra saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser


def planned_jobs(hydra: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The overrides of each job, from the `hydra` node of a sweep: its study's options and the command line.

    Raises KeyError or one of Hydra's errors if the node does not belong to a sweep.
    """
    swept = (hydra.get("sweeper") or {}).get("params") or {}
    words = [*(f"{key}={value}" for key, value in swept.items()), *hydra["overrides"]["task"]]
    parsed = OverridesParser.create().parse_overrides(words)
    return [tuple(job) for job in BasicSweeper.split_arguments(parsed, None)[0]]
