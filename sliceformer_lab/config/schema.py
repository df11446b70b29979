"""From a node of the configuration to an object: which code it may name, and whether its options fit.

A node is a mapping with a `_target_`; the target's keyword-only arguments are its schema. Nothing here imports
torch, so that a wrong option is told before the slow imports.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from sliceformer_lab.config.moved import current_target
from sliceformer_lab.errors import ConfigError

ALLOWED_PREFIXES = (
    "sliceformer_lab.",
    "torch.optim.",
    "torch.nn.",
    "torchvision.transforms.",
    "timm.",
    "pytorch_lightning.",
)
MODEL_NODES = ("encoder", "block", "attention", "optim")
_extra_prefixes: tuple[str, ...] = ()

Node = Mapping[str, Any]

__all__ = [
    "ConfigError",
    "Node",
    "allow_targets",
    "check_config",
    "check_options",
    "construct",
    "locate",
    "nearest",
    "schema",
]


class RootConfig(BaseModel):
    """The top level of a configuration; each node is checked by the signature of its target."""

    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())

    seed: Annotated[int, Field(ge=0)]
    mode: Literal["train", "eval"]
    resume: str | None
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
    optim: dict[str, Any]
    trainer: dict[str, Any]
    callbacks: dict[str, dict[str, Any]]
    logger: dict[str, Any]
    paths: dict[str, str]


def check_config(config: Mapping[str, Any]) -> None:
    """Raises ConfigError with every fault of the top level and of every node's options at once."""
    faults = []
    try:
        RootConfig.model_validate(dict(config))
    except ValidationError as error:
        faults += _faults(error, {name: name for name in RootConfig.model_fields}, "")
    for where, node in _nodes(config):
        try:
            check_options(node, where)
        except ConfigError as error:
            faults.append(str(error))
    if faults:
        raise ConfigError("; ".join(faults))


def _nodes(config: Mapping[str, Any]) -> list[tuple[str, Node]]:
    """The nodes with a target, by their place in the configuration."""
    callbacks = config.get("callbacks") or {}
    found = {name: config.get(name) for name in ("task", "data", *MODEL_NODES, "trainer")}
    found |= {f"callbacks.{name}": node for name, node in callbacks.items()} if isinstance(callbacks, dict) else {}
    found |= {"logger": config["logger"]} if config.get("logger") else {}
    return [(where, node) for where, node in found.items() if isinstance(node, dict)]


def allow_targets(prefixes: object) -> None:
    """Let `_target_` name code of these packages too; only ever called with what the command line says."""
    global _extra_prefixes
    if not isinstance(prefixes, list) or not all(isinstance(p, str) and p.strip(".") for p in prefixes):
        raise ConfigError(f"allow_targets: given {prefixes!r}, should be a list of packages such as [my_package.]")
    _extra_prefixes = tuple(p if p.endswith(".") else p + "." for p in prefixes)


def locate(target: str, where: str = "_target_") -> Any:
    """The class or function of a dotted name. Raises ConfigError if it is not allowed or not there."""
    target = current_target(target)
    if not target.startswith(ALLOWED_PREFIXES + _extra_prefixes):
        package = target.split(".")[0]
        raise ConfigError(
            f"{where}: {target} is code outside the allowed packages "
            f"({', '.join(p.rstrip('.') for p in ALLOWED_PREFIXES)}); "
            f"if you trust it, say 'allow_targets=[{package}.]' on the command line"
        )
    module, _, name = target.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{where}: {target} cannot be loaded ({error})") from error
    if not callable(found) or not f"{found.__module__}.".startswith(ALLOWED_PREFIXES + _extra_prefixes):
        raise ConfigError(f"{where}: {target} is not a class or function that is defined in an allowed package")
    return found


@cache
def schema(target: Any) -> dict[str, tuple[Any, Any]]:
    """What a node may set of a class or function: name -> (type, default or ...).

    Of our code these are the keyword-only arguments (positional ones are not the user's); of a library's, all named.
    """
    function = target.__init__ if inspect.isclass(target) else target
    hints = get_type_hints(function, include_extras=True)
    kinds = [inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD]
    if target.__module__.startswith("sliceformer_lab."):
        kinds.pop()
    return {
        p.name: (hints.get(p.name, Any), ... if p.default is p.empty else p.default)
        for p in inspect.signature(function).parameters.values()
        if p.kind in kinds and p.name != "self"
    }


@cache
def _model(target: Any) -> type[BaseModel]:
    """What checks the options of a target: numbered fields, since an option may be called what pydantic reserves."""
    numbered: dict[str, Any] = {f"field_{i}": hint_default for i, hint_default in enumerate(schema(target).values())}
    rules = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)
    return create_model("Options", __config__=rules, **numbered)


def check_options(node: Node, where: str) -> Any:
    """The target of a node whose options all fit its signature. Raises ConfigError with every fault at once."""
    if "_target_" not in node:
        raise ConfigError(f"{where}: has no _target_, so nothing says what to build")
    target = locate(str(node["_target_"]), f"{where}._target_")
    fields, model = schema(target), _model(target)
    options = {k: v for k, v in node.items() if k != "_target_"}
    names = {f"field_{i}": name for i, name in enumerate(fields)}
    keys = {name: key for key, name in names.items()}
    try:
        model(**{keys.get(str(k), str(k)): _tuples_for(fields.get(str(k)), v) for k, v in options.items()})
    except ValidationError as error:
        raise ConfigError("; ".join(_faults(error, names, where))) from None
    return target


def construct(node: Node, *spec: Any, where: str = "configuration") -> Any:
    """The object of a node: its target called with `spec` positionally and the node's options.

    Raises ConfigError if the options do not fit or the constructor refuses their values.
    """
    target = check_options(node, where)
    fields = schema(target)
    options = {str(k): _tuples_for(fields.get(str(k)), v) for k, v in node.items() if k != "_target_"}
    try:
        return target(*spec, **options)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error


def nearest(name: str, known: list[str]) -> str:
    """'; did you mean x?' where one of `known` is close to `name`, else the list of what there is."""
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(sorted(known))}" if known else ""


def _tuples_for(field: tuple[Any, Any] | None, value: Any) -> Any:
    """YAML knows lists only; a strict schema that asks for a tuple gets one."""
    if field is not None and isinstance(value, list) and "tuple" in str(field[0]):
        return tuple(value)
    return value


def _faults(error: ValidationError, names: dict[str, str], where: str) -> list[str]:
    """A sentence for each option at fault; `names` translates pydantic's fields to ours."""
    faults: dict[str, str] = {}
    for fault in error.errors():
        first, *inner = map(str, fault["loc"])
        inner = [part for part in inner if part.isdigit() or not where]  # of a node's unions, pydantic names the type
        path = ".".join(filter(None, [where, names.get(first, first), *inner]))
        if fault["type"] == "extra_forbidden":
            faults[path] = f"there is no such option{nearest(first, list(names.values()))}"
        elif fault["type"] == "missing":
            faults[path] = "a value is needed"
        else:
            wanted = fault["msg"].removeprefix("Input ").removeprefix("Value error, ")
            # a union has a fault for each of its types
            faults[path] = f"{faults[path]} or {wanted}" if path in faults else f"given {fault['input']!r}, {wanted}"
    return [f"{path}: {text}" for path, text in faults.items()]
