"""The jobs of a sweep: which rows of a study run, and the plan that is printed first. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.plugins import Plugins
from hydra.experimental.callback import Callback
from hydra.plugins.sweeper import Sweeper
from omegaconf import DictConfig, OmegaConf, flag_override
from rich.console import Console

from sliceformer_lab.errors import ConfigError, RunFolderError
from sliceformer_lab.runs.folder import is_finished
from sliceformer_lab.runs.papers import recipe_rows
from sliceformer_lab.runs.sweep import SELECTS_ROWS, override_key, planned_jobs


def study_rows(rows: Sequence[str] | None, recipes: Sequence[str] | None) -> list[str]:
    """The rows that a study lists, and one for each command of its recipes that repeats a printed cell."""
    of_recipes = [f"recipe={recipe} {words}" for recipe in recipes or () for words in recipe_rows(recipe)]
    return [*of_recipes, *(rows or ())]


class Plan(Callback):
    """Selects the rows of a study and prints the plan of a sweep.

    The command line replaces keys that a study sweeps. recipe= and attention= keep only the rows with one of the given
    values.
    """

    def __init__(self, rows: Sequence[str] | None = None, recipes: Sequence[str] | None = None) -> None:
        self.rows = study_rows(rows, recipes) or None

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:  # Hydra's signature
        """Apply the command line to the study, pass its rows to Hydra's sweeper, and print the plan."""
        del kwargs
        given = {override_key(word): word.partition("=")[2] for word in config.hydra.overrides.task}
        with flag_override(config.hydra, ["readonly", "struct"], False):
            params = config.hydra.sweeper.get("params")
            for key in set(given).intersection(params or {}):
                del params[key]
            if self.rows is not None:
                rows = [row for row in self.rows if _is_selected(row, given)]
                config.hydra.callbacks.plan = {**config.hydra.callbacks.plan, "rows": rows, "recipes": None}
        hydra: Any = OmegaConf.to_container(config.hydra, resolve=False)
        jobs = planned_jobs(hydra)
        if self.rows is not None:
            _sweep_once_over(jobs)
        Console(highlight=False, soft_wrap=True).print("\n".join(_plan(config, jobs)), markup=False)


def _is_selected(row: str, given: Mapping[str, str]) -> bool:
    """Whether a row has one of the recipes and one of the attentions that the command line gives."""
    words = dict(word.split("=", 1) for word in row.split())
    return all(words.get(key) in given[key].split(",") for key in SELECTS_ROWS if key in given)


def _sweep_once_over(jobs: list[tuple[str, ...]]) -> None:
    """Make the next sweep of this process run these jobs.

    Hydra's own sweeper only knows products of options, and only loads sweepers from its own plugin packages. Hydra
    turns an error raised in a callback into a warning, so a sweep without jobs is refused here, inside the sweeper.
    """
    sweepers = Plugins.instance().discover(Sweeper)  # Hydra loads its plugins again: its class is not the imported one
    used: Any = next(sweeper for sweeper in sweepers if sweeper.__name__ == BasicSweeper.__name__)
    products = used.split_arguments

    def split(*_: Any) -> list[list[list[str]]]:
        used.split_arguments = staticmethod(products)
        if not jobs:
            raise ConfigError("the study has no row with this recipe and attention; its file in conf/study lists them")
        return [[list(job) for job in jobs]]

    used.split_arguments = staticmethod(split)


def _plan(config: DictConfig, jobs: list[tuple[str, ...]]) -> list[str]:
    """The lines to print: number of jobs, swept keys with their values, folder, how to continue."""
    choices, folder = config.hydra.runtime.choices, Path(config.hydra.sweep.dir)
    title = f"study {choices.study}" if choices.study else "sweep"
    done = sum(map(_is_done, sorted(folder.glob("[0-9]*-*"))))
    return [
        f"{title} at scale {choices.scale}: {len(jobs)} jobs, one after the other",
        *(f"  {key}: {', '.join(values)}" for key, values in _swept(jobs).items()),
        f"  in {folder}" + (f"; {done} of them have finished there" if done else ""),
        f"  if it is stopped, the same command with hydra.sweep.dir={folder} continues it and skips finished jobs",
    ]


def _swept(jobs: list[tuple[str, ...]]) -> dict[str, list[str]]:
    """The keys in which jobs differ, with their values."""
    values: dict[str, dict[str, None]] = {}
    for word in (word for job in jobs for word in job):
        key, _, value = word.partition("=")
        values.setdefault(key, {})[value] = None
    return {key: list(found) for key, found in values.items() if len(found) > 1}


def _is_done(folder: Path) -> bool:
    try:
        return is_finished(folder)
    except (RunFolderError, KeyError):
        return False
