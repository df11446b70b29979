"""What a sweep is going to do: its jobs, told before the first one starts. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.experimental.callback import Callback
from hydra.plugins.sweeper import Sweeper
from omegaconf import DictConfig, OmegaConf, flag_override
from rich.console import Console

from sliceformer_lab.config.compose import option_names
from sliceformer_lab.errors import ConfigError, RunFolderError
from sliceformer_lab.runs.folder import is_finished
from sliceformer_lab.runs.papers import recipe_rows

BENCHMARKS = {"sliceformer_table3": "lra_speed", "samsa_table1_speed": "samsa_speed"}  # tables of speeds, and the suite
CHOSEN_BY_ROWS = ("recipe", "attention")
SKIPPED = "the same command with hydra.sweep.dir={folder} goes on with it and skips what has finished"


def study_names() -> list[str]:
    """The studies that train, and those that measure."""
    return sorted([*option_names("study"), *BENCHMARKS])


def planned_jobs(hydra: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The overrides of each job of a sweep, from Hydra's node: what its study runs, and the command line.

    Each row of a study is combined with everything else that is swept. Raises KeyError or Hydra's errors where the
    node is not that of a sweep.
    """
    swept = (hydra.get("sweeper") or {}).get("params") or {}
    rows = ((hydra.get("callbacks") or {}).get("plan") or {}).get("rows")
    given = [word for word in hydra["overrides"]["task"] if rows is None or _key(word) not in CHOSEN_BY_ROWS]
    parser = OverridesParser.create()
    jobs: list[tuple[str, ...]] = []
    for row in [""] if rows is None else rows:
        words = [*row.split(), *(f"{key}={value}" for key, value in swept.items()), *given]
        jobs += map(tuple, BasicSweeper.split_arguments(parser.parse_overrides(words), None)[0])
    return jobs


def study_rows(rows: Sequence[str] | None, recipes: Sequence[str] | None) -> list[str]:
    """The rows that a study lists, and one for each command of its recipes that repeats a printed cell."""
    of_recipes = [f"recipe={recipe} {words}" for recipe in recipes or () for words in recipe_rows(recipe)]
    return [*of_recipes, *(rows or ())]


class Plan(Callback):
    """Lists the jobs of a study that are no product of options, and prints what a sweep is going to do.

    The command line goes before a study: a key that it gives is not swept by the study too, and recipe= and attention=
    keep only the rows that have one of the given values.
    """

    def __init__(
        self, rows: Sequence[str] | None = None, recipes: Sequence[str] | None = None, only: object = None
    ) -> None:
        listed = study_rows(rows, recipes)
        self.rows = [row for row in listed if only is None or str(only) in row] if listed else None

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:  # Hydra's signature
        """Let the command line go first, hand the rows to Hydra's sweeper, and print the plan."""
        del kwargs
        given = {_key(word): word.partition("=")[2] for word in config.hydra.overrides.task}
        with flag_override(config.hydra, ["readonly", "struct"], False):
            params = config.hydra.sweeper.get("params")
            for key in set(given).intersection(params or {}):
                del params[key]
            if self.rows is not None:
                rows = [row for row in self.rows if _is_chosen(row, given)]
                config.hydra.callbacks.plan = {**config.hydra.callbacks.plan, "rows": rows, "recipes": None}
        hydra: Any = OmegaConf.to_container(config.hydra, resolve=False)
        jobs = planned_jobs(hydra)
        if self.rows is not None:
            _sweep_once_over(jobs)
        Console(highlight=False, soft_wrap=True).print("\n".join(_told(config, jobs)), markup=False)


def _key(word: str) -> str:
    """The key of an override."""
    return word.lstrip("+~").partition("=")[0]


def _is_chosen(row: str, given: Mapping[str, str]) -> bool:
    """Whether a row has one of the recipes and one of the attentions that the command line gives."""
    words = dict(word.split("=", 1) for word in row.split())
    return all(words.get(key) in given[key].split(",") for key in CHOSEN_BY_ROWS if key in given)


def _sweep_once_over(jobs: list[tuple[str, ...]]) -> None:
    """Make the next sweep of this process run these jobs: Hydra's own sweeper knows products only.

    Hydra would turn an error raised in a callback into a warning, so a sweep without jobs is refused here, inside it.
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


def _told(config: DictConfig, jobs: list[tuple[str, ...]]) -> list[str]:
    choices, folder = config.hydra.runtime.choices, Path(config.hydra.sweep.dir)
    named = f"study {choices.study}" if choices.study else "sweep"
    done = sum(map(_is_done, sorted(folder.glob("[0-9]*-*"))))
    return [
        f"{named} at scale {choices.scale}: {len(jobs)} jobs, one after the other",
        *(f"  {key}: {', '.join(values)}" for key, values in _swept(jobs).items()),
        f"  in {folder}" + (f"; {done} of them have finished there" if done else ""),
        f"  if it is stopped, {SKIPPED.format(folder=folder)}",
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
