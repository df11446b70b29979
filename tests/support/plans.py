"""Runs and their parts from plain configurations, which the tests change before they are checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch

from sliceformer_lab.batch import Batch
from sliceformer_lab.config.checked import RunPlan, check_config, check_model
from sliceformer_lab.config.compose import NOT_OF_A_RUN, preset_root
from sliceformer_lab.config.schema import build_object, check_node
from sliceformer_lab.data.base import DataModule
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.training import build
from sliceformer_lab.training.run import run as run_plan

Data = TypeVar("Data", bound=DataModule)


def plan_of(config: Mapping[str, Any] | RunPlan) -> RunPlan:
    """The plan of a composed configuration, or a plan as it is."""
    if isinstance(config, RunPlan):
        return config
    return check_config({key: value for key, value in config.items() if key not in NOT_OF_A_RUN})


def run(config: Mapping[str, Any] | RunPlan, folder: Path) -> None:
    """Train, or score again, what a configuration says."""
    plan = plan_of(config)
    run_plan(plan, build.build_data(plan), folder)


def build_data(config: Mapping[str, Any] | RunPlan) -> DataModule:
    """The data module of a configuration."""
    return build.build_data(plan_of(config))


def prepared(data: Data) -> Data:
    """A data module with its files read and split."""
    data.setup()
    return data


def built_data(name: str, **options: Any) -> DataModule:
    """The data module of a class such as `sequences.text_csv.TextCSV`, with its options checked, ready."""
    return prepared(build_object({"_target_": f"sliceformer_lab.data.{name}", **options}, where="data"))


def encoded(data: DataModule, contents: Sequence[Any]) -> Batch:
    """New contents as the batch that a trained model gets."""
    return data.collate([data.encode_one(content) for content in contents])


def build_task(config: Mapping[str, Any], data: DataSpec) -> Any:
    """The task of a configuration; reads its nodes of task and model alone."""
    return build.build_model(check_node(config["task"], "task"), check_model(config), data)


def small_task(*words: str, data: DataSpec) -> Any:
    """The task of some words with a tiny encoder and the weights of seed 0, in evaluation mode; composed once."""
    torch.manual_seed(0)
    return build_task(preset_root("encoder=tiny", *words), data).eval()
