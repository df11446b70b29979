"""What a run is called on Weights & Biases: its name, the sentence about it, and the options a table groups by."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

from sliceformer_lab.config.checked import RunPlan
from sliceformer_lab.runs.commit import package_versions
from sliceformer_lab.runs.sweep import SWEEP_FILE, override_key, read_sweep

LOGGER = "sliceformer_lab.training.results.loggers.wandb_logger"
IN_NAMES = ("attention", "seed", "task")  # a run's name always says them
NOT_IN_NAMES = ("hydra.", "paths.", "score_test")  # options that do not tell models apart
JOBS, ROWS = "comparison/jobs", "comparison/rows"  # tables of a sweep: a line for each job; one for each row
RUNS = "runs"  # the folder of the runs in that of an audit, a search or a map


def config_of(plan: RunPlan) -> dict[str, Any]:
    """The configuration, in which `attention` and `task` are names; their nodes are in `nodes`."""
    nodes = {name: plan.plain[name] for name in ("attention", "task")}
    names = {"attention": plan.names.attention, "task": plan.names.task}
    return {**plan.plain, **names, "nodes": nodes, "versions": package_versions()}


def title_of(plan: RunPlan, folder: Path) -> str:
    """The name of a run: its attention, seed and task, and its values of the options that the sweep varies."""
    names = plan.names
    varied = varied_options(folder.parent)
    own = [f"{key}={values[folder.name]}" for key, values in varied.items() if key not in IN_NAMES]
    return f"{', '.join([names.attention, *own, f'seed {plan.seed}'])} ({names.task})"


def sentence_of(plan: RunPlan, folder: Path) -> str:
    """What a run is for, in one sentence: the comparison of its sweep, or the run alone."""
    names, varied = plan.names, varied_options(folder.parent)
    if not varied:
        return f"Trains {names.attention} on {names.task} with seed {plan.seed}."
    return f"{sentence_of_sweep(varied)}, on {names.task}; this run is {folder.name} of {folder.parent.name}."


def sentence_of_sweep(varied: Mapping[str, Mapping[str, str]]) -> str:
    """What a sweep compares, without a full stop."""
    lists = [f"{key} ({', '.join(dict.fromkeys(values.values()))})" for key, values in varied.items()]
    return f"Compares {' and '.join(lists)}"


def group_of(plan: RunPlan, folder: Path) -> str:
    """The group of a run: its sweep, audit, search or map, or its task if it is alone."""
    sweep = folder.parent
    if not is_sweep_folder(sweep):
        return plan.names.task
    return sweep.parent.name if sweep.name == RUNS else sweep.name


def type_of(folder: Path) -> str:
    """The job type of a run: `trial` for those of a search, otherwise `train`."""
    return "trial" if folder.parent.name == RUNS and folder.name.startswith("trial-") else "train"


def is_sweep_folder(folder: Path) -> bool:
    """Whether the folder holds the runs of a sweep."""
    return (folder / SWEEP_FILE).is_file()


def varied_options(sweep: Path) -> dict[str, dict[str, str]]:
    """The options in which the jobs of a sweep differ, with each job's value by its folder's name; {} without a sweep.

    An option that a job's words leave out has the value `default`.
    """
    if not is_sweep_folder(sweep):
        return {}
    jobs = {
        job.name: {override_key(word): word.partition("=")[2] for word in job.words} for job in read_sweep(sweep).jobs
    }
    keys = dict.fromkeys(key for words in jobs.values() for key in words if not key.startswith(NOT_IN_NAMES))
    values = {key: {job: words.get(key, "default") for job, words in jobs.items()} for key in keys}
    return {key: of_jobs for key, of_jobs in values.items() if len(set(of_jobs.values())) > 1}


def is_wandb(logger: Any) -> TypeGuard[dict[str, Any]]:
    """Whether the node of a logger is that of W&B."""
    return isinstance(logger, dict) and logger.get("_target_") == LOGGER
