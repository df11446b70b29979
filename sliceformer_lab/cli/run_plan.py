"""From a composed configuration to the plan of its run, finished before anything runs. All faults are found here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sliceformer_lab.config.checked import RunPlan, check_config, collect_faults, with_values
from sliceformer_lab.config.compose import named_folders, option_names, preset_root, written_option
from sliceformer_lab.config.hybrid import hybrid_members, member_options
from sliceformer_lab.config.plain_checks import missing_files, new_run_faults, node_faults, own_paths, value_at
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.runs.folder import CONFIG, read_config, recorded_choices, write_child_config
from sliceformer_lab.runs.names import is_restarted
from sliceformer_lab.runs.papers import find_published, repeated_cell
from sliceformer_lab.runs.resume import list_differences, resumed_config
from sliceformer_lab.runs.sweep import override_key, resume_word
from sliceformer_lab.training.table_checks import check_columns, check_labels

if TYPE_CHECKING:  # the command line uses this module before it imports torch
    from sliceformer_lab.training.interfaces import DataModule


def plan_run(config: dict[str, Any], words: Sequence[str]) -> RunPlan:
    """The plan of a composed configuration, or with `resume` that of the saved one; `words` are of the command line.

    Raises ConfigError with every fault at once: first those of the values, then those of the classes that they name.
    """
    if config["resume"]:
        config = resumed_config(config, words)
    elif config["mode"] == "eval":
        raise ConfigError("mode=eval scores a finished run again: name it with resume=FOLDER")
    if deleted := node_faults(config):
        raise ConfigError("; ".join(deleted))
    faults = missing_files(config)  # as the user wrote them
    paths = own_paths(config).items()
    config = with_values(config, {place: str(Path(path).expanduser().resolve()) for place, path in paths})
    if not faults:
        with collect_faults(faults):
            check_columns(config)
            check_labels(config)
    if not config["resume"]:  # a saved configuration was checked when it was new, perhaps on a larger machine
        faults += new_run_faults(config, {override_key(word) for word in words})
        faults += _recipe_faults(config["names"]["recipe"], words)
    plan = check_config(config, faults)
    if not config["resume"] and hybrid_members(config["attention"]):
        plan = check_config(with_values(config, {"attention.options": member_options(config["attention"])}), [])
    _check_machine(plan)
    own = (word for word in words if override_key(word) != "study")  # which would repeat all runs of the study
    return plan.model_copy(update={"words": (*named_folders(), *own)})


def complete_plan(plan: RunPlan, data: DataModule) -> RunPlan:
    """The plan of a new run with the widths of its budget and the published cell that it repeats. Raises ConfigError.

    A saved configuration has both already.
    """
    if plan.budget and not plan.resume:
        from sliceformer_lab.training.budget import within_budget

        plan = within_budget(plan, data.spec)
    try:
        cell = plan.published if plan.resume else repeated_cell(plan.plain)
        if cell:
            find_published(cell)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return plan if cell == plan.published else plan.with_options({"published": cell})


def claim_folder(plan: RunPlan, folder: Path) -> None:
    """Writes the configuration that the other processes of a run read, into a folder that holds no other run.

    Raises ConfigError for a folder that does.
    """
    if not plan.resume and (folder / CONFIG).exists():
        _check_unchanged(plan.plain, folder)
    write_child_config(folder, plan.plain)


def _check_machine(plan: RunPlan) -> None:
    """Raises ConfigError with every reason why this machine cannot run a plan, or pretrain its task."""
    from sliceformer_lab.training.build import check_accelerator
    from sliceformer_lab.training.pretraining.pretrain import check_maskable
    from sliceformer_lab.training.processes.other_processes import check_processes

    faults: list[str] = []
    for check in (check_maskable, check_accelerator, check_processes):
        with collect_faults(faults):
            check(plan)
    if faults:
        raise ConfigError("; ".join(faults))


def _recipe_faults(recipe: str | None, words: Sequence[str]) -> list[str]:
    """A sentence for each encoder or optimiser of the command line in which the recipe sets keys.

    The recipe's keys would change the chosen one: encoder=tiny would have the recipe's depth.
    """
    if recipe not in option_names("recipe"):
        return []
    faults = []
    written = written_option("recipe", recipe)
    given = dict(word.split("=", 1) for word in words if "=" in word)
    for node in sorted({"encoder", "optim"}.intersection(given, written)):
        own = preset_root(f"recipe={recipe}")["hydra"]["runtime"]["choices"][node]
        if given[node] != own:
            keys = ", ".join(f"{node}.{key}" for key in written[node])
            faults.append(
                f"{node}={given[node]}: recipe={recipe} sets {keys} itself, which would change {given[node]}; "
                f"set these keys on the command line, or choose task, block and {node} without a recipe"
            )
    return faults


def _check_unchanged(config: Mapping[str, Any], folder: Path) -> None:
    """Let a Slurm job that is started again continue its own run. Raises ConfigError for any other run."""
    if not is_restarted():
        raise ConfigError(
            f"{folder} holds a run already; continue it with {resume_word(folder)} or choose another folder"
        )
    given = {place: value_at(config, place) for place in recorded_choices(folder)}
    left_open = {place: value for place, value in given.items() if value in (None, "auto")}
    saved = with_values(read_config(folder), left_open)  # as the user wrote it
    if changed := list_differences(saved, config):
        raise ConfigError(f"{folder} holds a run with another {', '.join(changed)}; choose another folder")
