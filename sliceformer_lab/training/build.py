"""From a checked configuration to data module and task; refuses combinations that cannot work before data are read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from sliceformer_lab.attention.base import Attention
from sliceformer_lab.config.checked import ModelNodes, model_of, node_at
from sliceformer_lab.config.compose import load_option, option_names
from sliceformer_lab.config.hybrid import attention_nodes
from sliceformer_lab.config.schema import CheckedNode, ConfigError
from sliceformer_lab.data.base import DataModule
from sliceformer_lab.data.spec import DataSpec, LoadPlan
from sliceformer_lab.encoder.base import EncoderBlock
from sliceformer_lab.runs.papers import find
from sliceformer_lab.training.interfaces import TaskModule
from sliceformer_lab.training.optim import OptimOptions

log = logging.getLogger(__name__)


def build_data(config: Mapping[str, Any], run_folder: Path | None = None) -> DataModule:
    """The data module of a configuration; nothing is read yet. A `run_folder` gives what encodes new inputs.

    Raises ConfigError.
    """
    task = node_at(config, "task")
    optim: OptimOptions = node_at(config, "optim").build()
    plan = LoadPlan(
        seed=config["seed"],
        accumulate=optim.accumulate,
        steps_between_scores=None if optim.max_steps else optim.val_every,
        score_test_each_epoch=config["selection"] == "best_test",
        pairwise=task.target.passes_bias(task.options),
        run_folder=run_folder,
    )
    data: DataModule = node_at(config, "data").build(plan)
    return data


def check_accelerator(trainer: Mapping[str, Any]) -> None:
    """Raises ConfigError for a GPU on a machine that has none."""
    wanted = trainer.get("accelerator")
    if wanted in ("gpu", "cuda") and not torch.accelerator.is_available():
        raise ConfigError(
            f"trainer.accelerator: given {wanted}, but torch finds no GPU on this machine; trainer=cpu trains without"
        )


def check_published(published: Mapping[str, Any] | None) -> None:
    """Raises ConfigError if the configuration repeats a published result that our tables do not hold."""
    try:
        if published:
            find(published)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def build_task(config: Mapping[str, Any], data: DataSpec) -> TaskModule:
    """The task of a configuration for data of these sizes.

    Raises ConfigError if attention, block, position, task and data do not fit together, before anything is built.
    """
    model, node = model_of(config), node_at(config, "task")
    check_compatibility(model, data, passes_bias=node.target.passes_bias(node.options))
    task: TaskModule = node.build(model, data)
    if data.unordered and any(attention.order_sensitive for attention in task.encoder.attentions):
        log.info(
            f"{data.name}: this attention depends on the order of tokens, but the points have none; "
            "data.order=hilbert sorts them along a curve"
        )
    return task


def check_compatibility(model: ModelNodes, data: DataSpec, *, passes_bias: bool) -> None:
    """Raises ConfigError if an attention of the model cannot take this data, block, bias or position.

    The message names the attentions that can.
    """
    block: type[EncoderBlock] = model.block.target
    if block.needs_edges and not data.has_edges:
        raise ConfigError(f"block: {block.__name__} convolves along edges, but {data.name} has no graphs")
    needs: list[tuple[str, Callable[[type[Attention]], bool]]] = [
        (f"{block.__name__} has a place for {block.place}", block.accepts)
    ]
    if passes_bias:
        needs.append((f"{data.name} passes a pairwise bias", lambda kind: kind.accepts_bias))
    if data.ragged:
        needs.append((f"{data.name} has sequences of many lengths", lambda kind: kind.accepts_padding))
    if data.predicts_next:
        needs.append((f"{data.name} predicts each token from those before it", lambda kind: kind.accepts_causal))
    if model.encoder.options["position"] == "rope":
        needs.append(("encoder.position=rope rotates queries and keys", lambda kind: kind.needs_qk))
    for reason, fits in needs:
        for kind in _kinds(model.attention):
            if not fits(kind):
                able = [name for name in option_names("attention") if _all_fit(name, fits)]
                raise ConfigError(
                    f"{reason}, which {kind.__name__} cannot take; attentions that can: {', '.join(able)}"
                )


def _kinds(layers: Iterable[CheckedNode]) -> list[type[Attention]]:
    """The attention classes of the layers, without repetition."""
    return list(dict.fromkeys(layer.target for layer in layers))


def _all_fit(name: str, fits: Callable[[type[Attention]], bool]) -> bool:
    """Whether the layers of an option fit. False for an option of the user whose code is not allowed."""
    try:
        return all(map(fits, _kinds(attention_nodes(load_option("attention", name)))))
    except ConfigError:
        return False
