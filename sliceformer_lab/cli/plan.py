"""Prints the plan of a sweep before its first job. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf, flag_override
from rich.console import Console

from sliceformer_lab.errors import RunFolderError
from sliceformer_lab.runs.folder import is_finished
from sliceformer_lab.runs.sweep import planned_jobs


class Plan(Callback):
    """Lets the command line replace keys that a study sweeps, and prints the plan of a sweep."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:  # Hydra's signature
        """Drop the study's keys that the command line gives too, which would run each job twice; print the plan."""
        del kwargs
        given = {word.lstrip("+~").partition("=")[0] for word in config.hydra.overrides.task}
        params = config.hydra.sweeper.get("params")
        for key in given.intersection(params or {}):
            with flag_override(config.hydra, ["readonly", "struct"], False):
                del params[key]
        Console(highlight=False, soft_wrap=True).print("\n".join(_plan(config)), markup=False)


def _plan(config: DictConfig) -> list[str]:
    """The lines to print: number of jobs, swept keys with their values, folder, how to continue."""
    choices, folder = config.hydra.runtime.choices, Path(config.hydra.sweep.dir)
    hydra: Any = OmegaConf.to_container(config.hydra, resolve=False)
    jobs = planned_jobs(hydra)
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
