"""From the plan of a run to data module and task; refuses combinations that cannot work before data are read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.accelerators import AcceleratorRegistry

from sliceformer_lab.attention.base import Attention
from sliceformer_lab.config.checked import ModelNodes, RunPlan
from sliceformer_lab.config.compose import load_options
from sliceformer_lab.config.hybrid import attention_nodes
from sliceformer_lab.config.schema import CheckedNode, ConfigError
from sliceformer_lab.data.base import DataModule
from sliceformer_lab.data.spec import DataSpec, LoadPlan
from sliceformer_lab.encoder.base import EncoderBlock
from sliceformer_lab.training.interfaces import TaskModule
from sliceformer_lab.training.optim import OptimOptions

log = logging.getLogger(__name__)


def build_data(
    plan: RunPlan, run_folder: Path | None = None, classes: tuple[str, ...] = (), targets: tuple[str, ...] = ()
) -> DataModule:
    """The data module of a run; nothing is read yet. A `run_folder` gives what encodes new inputs.

    `classes` and `targets` are those of a trained model, to which those of the data belong by name.

    Raises ConfigError.
    """
    optim: OptimOptions = plan.model.optim.build()
    loading = LoadPlan(
        seed=plan.seed,
        accumulate=optim.accumulate,
        steps_between_scores=None if optim.max_steps else optim.val_every,
        score_test_each_epoch=plan.selection == "best_test",
        pairwise=plan.task.target.passes_bias(plan.task.options),
        classes=classes,
        targets=targets,
        run_folder=run_folder,
    )
    data: DataModule = plan.data.build(loading)
    return data


def check_accelerator(plan: RunPlan) -> None:
    """Raises ConfigError for an accelerator that does not exist, or not on this machine, or lacks the precision."""
    wanted = plan.trainer.accelerator
    known = sorted({"auto", "gpu", *AcceleratorRegistry})
    if wanted not in known:
        raise ConfigError(f"trainer.accelerator: given {wanted}, should be one of {', '.join(known)}")
    if wanted == "gpu":
        missing = not torch.accelerator.is_available()
    else:
        missing = wanted in AcceleratorRegistry and not AcceleratorRegistry[wanted]["accelerator"].is_available()
    if missing:
        name = "GPU" if wanted in ("gpu", "cuda") else str(wanted).upper()
        fault = f"trainer.accelerator: given {wanted}, but torch finds no {name} on this machine"
        raise ConfigError(f"{fault}; trainer=cpu trains without one")
    if plan.trainer.precision == "16-mixed" and (wanted == "cpu" or not torch.accelerator.is_available()):
        raise ConfigError("trainer.precision=16-mixed: torch trains in float16 on a GPU only; take bf16-mixed")


def build_task(plan: RunPlan, data: DataSpec) -> TaskModule:
    """The task of a run for data of these sizes. Raises ConfigError as `build_model`."""
    return build_model(plan.task, plan.model, data)


def build_model(node: CheckedNode, model: ModelNodes, data: DataSpec) -> TaskModule:
    """The task of a node with this model for data of these sizes.

    Raises ConfigError if attention, block, position, task and data do not fit together, before anything is built.
    """
    check_compatibility(model, data, passes_bias=node.target.passes_bias(node.options), causal=node.target.causal)
    task: TaskModule = node.build(model, data)
    for layer in task.encoder.attentions if data.ragged else ():
        if not layer.accepts_padding:  # for its options; `check_compatibility` knows the classes that never do
            name = type(layer).__name__
            raise ConfigError(f"{data.name} has sequences of many lengths, which {name} with these options cannot take")
    arguments = {"model": dict(model.plain), "data": asdict(data), **node.options}  # that every checkpoint holds
    task.optim.freeze_layers(task)
    task.save_hyperparameters(arguments, logger=False)  # loggers have the run's whole configuration
    if node.options.get("pool") == "cls" and not any(layer.mixes_prefix for layer in task.encoder.attentions):
        log.warning(
            "WARNING: no attention brings information from other tokens to the class token; unless the block does, the "
            "model predicts the same for every input; task.pool=mean reads all tokens"
        )
    if data.unordered and any(attention.depends_on_order for attention in task.encoder.attentions):
        log.info(
            f"{data.name}: this attention depends on the order of tokens, but the points have none; "
            "data.order=hilbert sorts them along a curve"
        )
    return task


def check_compatibility(model: ModelNodes, data: DataSpec, *, passes_bias: bool, causal: bool) -> None:
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
    if causal:
        needs.append((f"{data.name} predicts each token from those before it", lambda kind: kind.accepts_causal))
    if model.encoder.options["position"] == "rope":
        needs.append(("encoder.position=rope rotates queries and keys", lambda kind: kind.needs_qk))
    for reason, fits in needs:
        for kind in _list_classes(model.attention):
            if not fits(kind):
                able = [name for name, node in load_options("attention").items() if _all_fit(node, fits)]
                raise ConfigError(
                    f"{reason}, which {kind.__name__} cannot take; attentions that can: {', '.join(able)}"
                )


def _list_classes(layers: Iterable[CheckedNode]) -> list[type[Attention]]:
    """The attention classes of the layers, without repetition."""
    return list(dict.fromkeys(layer.target for layer in layers))


def _all_fit(attention: Mapping[str, Any], fits: Callable[[type[Attention]], bool]) -> bool:
    """Whether the layers of an option's node fit. False for an option of the user whose code is not allowed."""
    try:
        return all(map(fits, _list_classes(attention_nodes(attention))))
    except ConfigError:
        return False
