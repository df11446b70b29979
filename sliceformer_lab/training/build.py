"""From a resolved configuration to data module and task, refusing what cannot work before anything is read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from sliceformer_lab.attention import attention_class
from sliceformer_lab.attention.base import Attention
from sliceformer_lab.config.compose import load_option, option_names, resolve_hybrid
from sliceformer_lab.config.schema import MODEL_NODES, ConfigError, check_options, construct
from sliceformer_lab.data.spec import DataSpec, LoadPlan
from sliceformer_lab.encoder.base import EncoderBlock
from sliceformer_lab.runs.papers import find

log = logging.getLogger(__name__)


def build_data(config: Mapping[str, Any]) -> Any:
    """The data module of a configuration; nothing is read yet."""
    optim = config["optim"]
    plan = LoadPlan(
        seed=config["seed"],
        accumulate=optim["accumulate"],
        steps_between_scores=None if optim.get("max_steps") else optim["val_every"],
        score_test_each_epoch=config["selection"] == "best_test",
    )
    return construct(config["data"], plan, where="data")


def check_published(published: Mapping[str, Any] | None) -> None:
    """Raises ConfigError if a run says that it repeats a cell which no paper prints, before hours are spent on it."""
    try:
        if published:
            find(published)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def build_task(config: Mapping[str, Any], data: DataSpec) -> Any:
    """The task of a configuration for data of these sizes, checked for compatibility first."""
    attention = resolve_hybrid(config["attention"])
    block: type[EncoderBlock] = check_options(config["block"], "block")
    check_compatibility(attention, data, block, rope=config["encoder"].get("position") == "rope")
    model = {node: config[node] for node in MODEL_NODES} | {"attention": attention}
    task = construct(config["task"], model, data, where="task")
    if data.ragged and any(layer.attention.fixed_length for layer in task.encoder.blocks):
        raise ConfigError(
            f"{data.name} has sequences of many lengths, but attention.groups divides sequences of one length; "
            "give attention.group_size instead"
        )
    if data.unordered and any(layer.attention.order_sensitive for layer in task.encoder.blocks):
        log.info(
            f"{data.name}: the attention depends on the order of tokens, which means nothing here; "
            "data.order=hilbert puts them along a curve"
        )
    return task


def check_compatibility(attention: Mapping[str, Any], data: DataSpec, block: type[EncoderBlock], *, rope: bool) -> None:
    """Raises ConfigError if the attention cannot take this data, block or position, naming those that can."""
    needs: list[tuple[str, Callable[[type[Attention]], bool]]] = [
        (f"{block.__name__} has a place for {block.place}", block.accepts)
    ]
    if data.needs_bias:
        needs.append((f"{data.name} passes a pairwise bias", lambda kind: kind.accepts_bias))
    if data.ragged:
        needs.append((f"{data.name} has sequences of many lengths", lambda kind: kind.accepts_padding))
    if block.needs_edges and not data.has_edges:
        raise ConfigError(f"block: {block.__name__} convolves along edges, but {data.name} has no graphs")
    if rope:
        needs.append(("encoder.position=rope turns queries and keys", lambda kind: kind.needs_qk))
    for reason, fits in needs:
        for kind in _classes(attention):
            if not fits(kind):
                able = [name for name in option_names("attention") if all(map(fits, _classes_of(name)))]
                raise ConfigError(
                    f"{reason}, which {kind.__name__} cannot take; attentions that can: {', '.join(able)}"
                )


def _classes(attention: Mapping[str, Any]) -> list[type[Attention]]:
    length = len(attention.get("pattern", [None]))
    return [attention_class(attention, index) for index in range(length)]


@cache  # composing every option takes seconds
def _classes_of(name: str) -> list[type[Attention]]:
    return _classes(resolve_hybrid(load_option("attention", name)))
