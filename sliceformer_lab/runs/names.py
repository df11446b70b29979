"""Folder names for runs, sweeps, reports and analyses: OmegaConf resolvers that the YAML files use."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from sliceformer_lab.config.compose import register_choices
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.config.versions import register_resolver
from sliceformer_lab.runs.files import name_of
from sliceformer_lab.runs.folder import CONFIG, runs_below
from sliceformer_lab.runs.sources import digests_of, sources_of_words


def register_resolvers() -> None:
    """Registers the functions below, `by_attention` and `by_task`. Names with a time are cached, so that they stay."""
    register_resolver("run_folder", run_folder, use_cache=True)
    register_resolver("benchmark_folder", benchmark_folder, use_cache=True)
    register_resolver("existing_folder", existing_folder)
    register_resolver("analysis_folder", analysis_folder)
    register_resolver("comparison_folder", comparison_folder, use_cache=True)
    register_resolver("map_folder", map_folder)
    register_resolver("task_folder", _task_folder)
    register_choices()


def run_folder(resume: str | None, outputs: str, task: str | None, attention: str | None, options: str) -> str:
    """The folder to resume, else <outputs>/<task>/<attention>/<time or Slurm job>-<digest of the options>.

    Raises ConfigError if `resume` is not a run folder, before anything is written to it.
    """
    if resume is None:
        if task is None or attention is None:
            group = "task" if task is None else "attention"
            raise ConfigError(f"{group}: name one option of {group}")
        return _of_this_start(Path(outputs).expanduser() / task / attention, "{}-" + short_digest(options))
    folder = Path(resume).expanduser()
    if not (folder / CONFIG).is_file():
        raise ConfigError(f"resume={resume} is not a run folder: it has no {CONFIG}{runs_below(folder)}")
    return str(folder)


def task_folder(task: str, data: Mapping[str, Any]) -> str:
    """The task's folder name. It contains the name of a user's own data, text_csv-reviews, or of a library's set."""
    if "dataset" in data:
        return "-".join(str(part) for part in (task, data["dataset"], data["name"]) if part)
    if "name" not in data:
        return task
    return f"{task}-{data['name'] or name_of(data['file'] if 'file' in data else data['root'])}"


def _task_folder(*, _root_: DictConfig) -> str:
    return task_folder(str(_root_.names.task), _root_.get("data") or {})


def benchmark_folder(outputs: str, suite: str) -> str:
    """<outputs>/benchmark/<suite>/<time>."""
    return str(Path(outputs).expanduser() / "benchmark" / suite / _format_now())


def existing_folder(folder: str) -> str:
    """The folder. Raises ConfigError if it does not exist, before it is made."""
    if not Path(folder).expanduser().is_dir():
        raise ConfigError(f"folder={folder}: there is no such folder; name one that holds runs, such as outputs")
    return str(Path(folder).expanduser())


def analysis_folder(runs: str | Sequence[str] | None, output: str | None, outputs: str, analysis: str) -> str:
    """`output`, or <folder>/analysis/<analysis>, where <folder> is the one that contains all the `runs`.

    Raises ConfigError if one of the `runs` does not exist, before it is made.
    """
    folders = [Path(name).expanduser() for name in ([runs] if isinstance(runs, str) else runs or ())]
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"runs={folder}: there is no such folder; name run folders, or a folder that holds some")
    if output is not None:
        return str(Path(output).expanduser())
    common = os.path.commonpath([folder.resolve() for folder in folders]) if folders else Path(outputs).expanduser()
    return str(Path(common) / "analysis" / analysis)


def comparison_folder(command: str, outputs: str, words: Sequence[str], *options: Any) -> str:
    """<outputs>/<command>/<task or recipe>-<digest>: one folder for the same options and data, so that it goes on."""
    chosen = dict(word.split("=", 1) for word in words if "=" in word)
    name = str(chosen.get("recipe") or chosen.get("task") or "digits").replace("/", "-")
    apart = [word for word in words if not word.startswith("paths.")]
    decisive = [sorted(apart), *map(str, options), *digests_of(sources_of_words(words))]
    return str(Path(outputs).expanduser() / command / f"{name}-{short_digest(repr(decisive))}")


def map_folder(outputs: str, words: Sequence[str], *options: Any) -> str:
    """<outputs>/map/<digest>: the same folder for the same options, so that a map goes on and grows."""
    apart = [word for word in words if not word.startswith("paths.")]
    return str(Path(outputs).expanduser() / "map" / short_digest(repr([sorted(apart), *map(str, options)])))


def is_slurm_job() -> bool:
    """Whether this process belongs to a job of Slurm."""
    return "SLURM_JOB_ID" in os.environ


def is_restarted() -> bool:
    """Whether Slurm has started this job again, after it was preempted or its machine failed."""
    return is_slurm_job() and os.environ.get("SLURM_RESTART_COUNT", "0") != "0"


def short_digest(options: str) -> str:
    """A hash of a set of options, six characters long."""
    return hashlib.sha256(options.encode()).hexdigest()[:6]


def _of_this_start(parent: Path, name: str) -> str:
    """A folder below `parent` whose `name` contains the time or the Slurm job of this start.

    A job that Slurm starts again has the folder of its first start, and goes on there. A second run of the same
    options in one job has a time.
    """
    if is_slurm_job():
        folder = parent / name.format(f"slurm-{os.environ['SLURM_JOB_ID']}")
        if is_restarted() or not folder.exists():
            return str(folder)
    return str(parent / name.format(_format_now()))


def _format_now() -> str:
    return f"{datetime.now():%Y-%m-%d_%H-%M-%S-%f}"
