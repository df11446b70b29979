"""The border: a configuration is checked here, once, and becomes a `RunPlan`. Everything after reads its fields."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sliceformer_lab.config.hybrid import attention_nodes
from sliceformer_lab.config.option_types import Seed
from sliceformer_lab.config.plain_checks import empty_epochs, number_faults
from sliceformer_lab.config.schema import MODEL_NODES, CheckedNode, ConfigError, check_node, faults_of
from sliceformer_lab.errors import DataError

RULES = ConfigDict(extra="forbid", strict=True, protected_namespaces=(), frozen=True)


class ChosenNames(BaseModel):
    """The options that were chosen by name."""

    model_config = RULES

    task: str
    attention: str
    recipe: str | None = None
    study: str | None = None
    scale: str | None = None


class Paths(BaseModel):
    """Folders of data and results, absolute; a user's options may name more."""

    model_config = RULES | ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, str] = Field(init=False)

    data: str
    outputs: str


class RunOptions(BaseModel):
    """The options of a run that are plain values."""

    model_config = RULES

    names: ChosenNames
    paths: Paths
    seed: Seed
    mode: Literal["train", "eval"]
    resume: str | None
    selection: Literal["best_val", "last", "best_test"]
    score_test: bool
    reference: Literal["auto"] | None
    pictures: bool
    oversubscribe: bool
    changed_data: Literal["refuse", "accept"]
    tuned_on: str | None = None
    tags: list[str]
    published: dict[str, Any] | None  # the cell of a paper's table that the run repeats
    budget: str | None
    budget_by: Literal["attention.inner_mult", "encoder.mlp_dim", "encoder.dim"] | None


class RootConfig(RunOptions):
    """The top level of a configuration; each node is checked by the signature of its target."""

    allow_targets: list[str]
    task: dict[str, Any]
    data: dict[str, Any]
    encoder: dict[str, Any]
    block: dict[str, Any]
    attention: dict[str, Any]
    pretrain: dict[str, Any]
    optim: dict[str, Any]
    trainer: dict[str, Any]
    callbacks: dict[str, dict[str, Any]]
    logger: dict[str, Any]


@dataclass(frozen=True)
class ModelNodes:
    """The checked nodes of a model and of how it is optimised."""

    encoder: CheckedNode
    block: CheckedNode
    attention: tuple[CheckedNode, ...]  # one per layer
    optim: CheckedNode
    plain: Mapping[str, Any]  # the four nodes as configured, for checkpoints


@dataclass(frozen=True, kw_only=True)
class TrainerOptions:
    """The trainer's node, and those of its options that a run itself reads."""

    node: CheckedNode
    accelerator: str
    devices: int | str | list[int]
    num_nodes: int
    precision: str | int | None
    fast_dev_run: bool | int
    limit_train_batches: int | float | None
    limit_val_batches: int | float | None
    compile: bool

    @classmethod
    def of(cls, node: CheckedNode) -> TrainerOptions:
        """The options of a node, or the defaults of its class."""
        names = [name for name in cls.__dataclass_fields__ if name != "node"]
        return cls(node=node, **{name: node.option(name) for name in names})


class RunPlan(RunOptions):
    """What a run does: typed, checked and complete. `plain` is only there to be written, into config.yaml and so on."""

    model_config = RULES | ConfigDict(arbitrary_types_allowed=True)

    task: CheckedNode
    data: CheckedNode
    model: ModelNodes
    pretrain: CheckedNode | None
    trainer: TrainerOptions
    callbacks: Mapping[str, CheckedNode]
    logger: CheckedNode | None
    plain: Mapping[str, Any]
    words: tuple[str, ...] = ()  # of a command line that repeats the run

    def with_options(self, values: Mapping[str, object]) -> RunPlan:
        """The plan with other values at places such as data.batch_size. Checks the nodes that change, and no others.

        Raises ConfigError.
        """
        plain = with_values(self.plain, values)
        changed = {place.partition(".")[0] for place in values}
        faults: list[str] = []
        fields = _check_nodes(plain, changed, faults)
        if faults:
            raise ConfigError("; ".join(faults))
        fields |= {name: plain[name] for name in changed & {"budget", "published", "score_test", "selection"}}
        return self.model_copy(update=fields | {"plain": plain})


def check_config(config: Mapping[str, Any], known_faults: Sequence[str] = ()) -> RunPlan:
    """The plan of a configuration. Raises ConfigError with every fault that its plain values show, or of all nodes.

    `known_faults` are faults that the caller has found in the values. The classes that nodes name are only imported
    for a configuration whose values are in order.
    """
    faults = [*known_faults, *number_faults(config)]
    root = None
    try:
        root = RootConfig.model_validate(dict(config))
    except ValidationError as error:
        faults += faults_of(error, list(RootConfig.model_fields), "")
    faults += empty_epochs(config)
    if config.get("selection") == "best_test" and config.get("score_test") is False:
        faults.append("selection=best_test scores the test set every epoch, and score_test=false never; change one")
    if faults or root is None:
        raise ConfigError("; ".join(faults))
    nodes = _check_nodes(config, set(config), faults)
    if faults:
        raise ConfigError("; ".join(faults))
    kept = {name: getattr(root, name) for name in RunOptions.model_fields}
    return RunPlan.model_construct(**kept, **nodes, plain=config)


def check_model(config: Mapping[str, Any]) -> ModelNodes:
    """The checked nodes of a model. Raises ConfigError with every fault of their options at once."""
    plain = {name: config[name] for name in MODEL_NODES}
    faults: list[str] = []
    checked: dict[str, CheckedNode] = {}
    layers: tuple[CheckedNode, ...] = ()
    for name, node in plain.items():
        with collect_faults(faults):
            if name == "attention":
                depth = checked["encoder"].options.get("depth") if "encoder" in checked else None
                layers = attention_nodes(node, depth)
            else:
                checked[name] = check_node(node, name)
    if faults:
        raise ConfigError("; ".join(faults))
    return ModelNodes(attention=layers, plain=plain, **checked)


def with_values(config: Mapping[str, Any], values: Mapping[str, object]) -> dict[str, Any]:
    """The configuration with other values at some places, such as {"data.batch_size": 32}."""
    changed = copy.deepcopy(dict(config))
    for place, value in values.items():
        *nodes, key = place.split(".")
        node = changed
        for name in nodes:
            if not isinstance(node.get(name), dict):
                node[name] = {}
            node = node[name]
        node[key] = value
    return changed


def _check_nodes(config: Mapping[str, Any], names: set[str], faults: list[str]) -> dict[str, Any]:
    """The fields of a plan that hold the nodes of these `names`; adds to `faults`."""
    fields: dict[str, Any] = {}
    for name in names & {"task", "data", "pretrain", "logger"}:
        with collect_faults(faults):
            is_none = name in ("pretrain", "logger") and not config[name]
            fields[name] = None if is_none else check_node(config[name], name)
    if "trainer" in names:
        with collect_faults(faults):
            fields["trainer"] = TrainerOptions.of(check_node(config["trainer"], "trainer"))
    if "callbacks" in names:
        fields["callbacks"] = {}
        for name, node in config["callbacks"].items():
            with collect_faults(faults):
                fields["callbacks"][name] = check_node(node, f"callbacks.{name}")
    if not names.isdisjoint(MODEL_NODES):
        with collect_faults(faults):
            fields["model"] = check_model(config)
    return fields


@contextmanager
def collect_faults(faults: list[str]) -> Iterator[None]:
    """Adds an error of the configuration or of the data to `faults` in place of raising it."""
    try:
        yield
    except (ConfigError, DataError) as error:
        faults.append(str(error))
