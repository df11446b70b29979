"""The border: a configuration is checked here, once, and everything after reads the checked nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from sliceformer_lab.config.hybrid import attention_nodes
from sliceformer_lab.config.old_options import current_config
from sliceformer_lab.config.option_types import Seed
from sliceformer_lab.config.plain_checks import empty_epochs, number_faults
from sliceformer_lab.config.schema import MODEL_NODES, CheckedNode, ConfigError, check_node, faults_of


class RootConfig(BaseModel):
    """The top level of a configuration; each node is checked by the signature of its target."""

    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())

    seed: Seed
    mode: Literal["train", "eval"]
    resume: str | None
    score_test: bool = True  # runs of older versions have none
    reference: Literal["auto"] | None = None  # runs of older versions have none
    pictures: bool = True
    oversubscribe: bool = False
    selection: Literal["best_val", "last", "best_test"]
    allow_targets: list[str]
    tags: list[str]
    published: dict[str, Any] | None
    budget: str | None = None  # runs of older versions have none
    budget_by: Literal["attention.inner_mult", "encoder.mlp_dim", "encoder.dim"] | None = None
    names: dict[str, str | None]
    task: dict[str, Any]
    data: dict[str, Any]
    encoder: dict[str, Any]
    block: dict[str, Any]
    attention: dict[str, Any]
    pretrain: dict[str, Any] = {}  # runs of older versions have none
    optim: dict[str, Any]
    trainer: dict[str, Any]
    callbacks: dict[str, dict[str, Any]]
    logger: dict[str, Any]
    paths: dict[str, str]


@dataclass(frozen=True)
class ModelNodes:
    """The checked nodes of a model and of how it is optimised."""

    encoder: CheckedNode
    block: CheckedNode
    attention: tuple[CheckedNode, ...]  # one per layer
    optim: CheckedNode
    plain: Mapping[str, Any]  # the four nodes as configured, for checkpoints


@dataclass(frozen=True)
class CheckedConfig(Mapping[str, Any]):
    """A configuration in which every option fits. As a mapping, it holds the plain values."""

    plain: Mapping[str, Any]
    nodes: Mapping[str, CheckedNode]  # by place: task, data, trainer, logger, callbacks.<name>
    model: ModelNodes

    def __getitem__(self, key: str) -> Any:
        return self.plain[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.plain)

    def __len__(self) -> int:
        return len(self.plain)


def check_config(config: Mapping[str, Any]) -> CheckedConfig:
    """The checked configuration. Raises ConfigError with every fault that its plain values show, or of all nodes.

    The classes that nodes name are only imported for a configuration whose values are in order.
    """
    faults = number_faults(config)
    try:
        RootConfig.model_validate(dict(config))
    except ValidationError as error:
        faults += faults_of(error, {name: name for name in RootConfig.model_fields}, "")
    faults += empty_epochs(config)
    if config.get("selection") == "best_test" and config.get("score_test") is False:
        faults.append("selection=best_test scores the test set every epoch, and score_test=false never; change one")
    if faults:
        raise ConfigError("; ".join(faults))
    checked = {}
    for where, node in _nodes(config).items():
        with _collected(faults):
            checked[where] = check_node(node, where)
    model = None
    if all(isinstance(config.get(name), dict) for name in MODEL_NODES):
        with _collected(faults):
            model = check_model(config)
    if faults or model is None:
        raise ConfigError("; ".join(faults))
    return CheckedConfig(config, checked, model)


def check_model(config: Mapping[str, Any]) -> ModelNodes:
    """The checked nodes of a model. Raises ConfigError with every fault of their options at once."""
    plain = {name: config[name] for name in MODEL_NODES}
    faults: list[str] = []
    checked: dict[str, CheckedNode] = {}
    layers: tuple[CheckedNode, ...] = ()
    for name, node in plain.items():
        with _collected(faults):
            if name == "attention":
                depth = checked["encoder"].options.get("depth") if "encoder" in checked else None
                layers = attention_nodes(node, depth)
            else:
                checked[name] = check_node(node, name)
    if faults:
        raise ConfigError("; ".join(faults))
    return ModelNodes(attention=layers, plain=plain, **checked)


def saved_model(nodes: Mapping[str, Any]) -> ModelNodes:
    """The checked nodes of a model that a checkpoint holds as plain values. Raises ConfigError."""
    return check_model(current_config(nodes))


def model_of(config: Mapping[str, Any]) -> ModelNodes:
    """The model's nodes of a configuration; checks them if they are not checked yet. Raises ConfigError."""
    return config.model if isinstance(config, CheckedConfig) else check_model(config)


def node_at(config: Mapping[str, Any], place: str) -> CheckedNode:
    """The node at a place such as `task` or `callbacks.checkpoint`; checks it if it is not checked yet.

    Raises ConfigError.
    """
    if isinstance(config, CheckedConfig):
        return config.model.optim if place == "optim" else config.nodes[place]
    node: Any = config
    for key in place.split("."):
        node = node.get(key) if isinstance(node, Mapping) else None
    return check_node(node, place)


def _nodes(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The nodes with a target outside the model, by their place in the configuration."""
    callbacks = config.get("callbacks")
    found = {name: config.get(name) for name in ("task", "data", "trainer")}
    found |= {f"callbacks.{name}": node for name, node in callbacks.items()} if isinstance(callbacks, dict) else {}
    found |= {name: config[name] for name in ("logger", "pretrain") if config.get(name)}
    return {where: node for where, node in found.items() if isinstance(node, dict)}


@contextmanager
def _collected(faults: list[str]) -> Iterator[None]:
    """Adds a ConfigError to `faults` in place of raising it."""
    try:
        yield
    except ConfigError as error:
        faults.append(str(error))
