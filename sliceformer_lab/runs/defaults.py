"""The options that a run has if its command names only its task, attention, recipe and scale."""

from __future__ import annotations

from functools import cache
from typing import Any

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from sliceformer_lab.config.compose import compose_job, option_names
from sliceformer_lab.errors import LabError
from sliceformer_lab.runs.collect import RunRecord, flat_options
from sliceformer_lab.runs.papers import FULL


def default_options(run: RunRecord) -> dict[str, Any]:
    """The options by path as today's version composes them; empty if it lacks the task, attention or recipe.

    A summary may come from anywhere, so its names are only composed if they are options.
    """
    recipe = run.summary.get("recipe")
    scale = None if run.scale == FULL else run.scale
    chosen = {"recipe": recipe, "task": None if recipe else run.task, "attention": run.attention, "scale": scale}
    named = {group: name for group, name in chosen.items() if name is not None}
    if not all(name in option_names(group) for group, name in named.items()):
        return {}
    return _composed(tuple(f"{group}={name}" for group, name in named.items()))


@cache  # a second for each
def _composed(overrides: tuple[str, ...]) -> dict[str, Any]:
    try:
        return dict(flat_options(compose_job(overrides)))
    except (HydraException, OmegaConfBaseException, LabError):
        return {}
