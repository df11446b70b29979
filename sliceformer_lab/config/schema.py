"""From a node of the configuration to an object: which code it may name, and whether its options fit.

A node is a mapping with a `_target_`. The keyword-only arguments of the target are the schema of the node. A node is
checked once and is a `CheckedNode` from then on. Nothing here imports torch, so that wrong options are reported before
the slow imports.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

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
    "CheckedNode",
    "ConfigError",
    "Node",
    "allow_targets",
    "check_node",
    "construct",
    "locate",
    "nearest",
    "schema",
]


@dataclass(frozen=True)
class CheckedNode:
    """A class or function and options that fit its signature."""

    target: Any
    options: Mapping[str, Any]
    where: str  # the node's place in the configuration, for messages

    def build(self, *spec: Any) -> Any:
        """The target called with `spec` positionally and the options.

        Raises ConfigError if the constructor refuses the values of the options.
        """
        try:
            return self.target(*spec, **self.options)
        except ValueError as error:
            raise ConfigError(f"{self.where}: {error}") from error


def allow_targets(prefixes: object) -> None:
    """Let `_target_` name code of these packages too. Call it only with what the command line gives."""
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
    """The options that a node may set of a class or function: name -> (type, default or ...).

    In our code these are the keyword-only arguments; positional ones are not the user's. In a library's code they are
    all named arguments.
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
    """The pydantic model of a target's options. Its fields are numbered, because pydantic reserves some names."""
    numbered: dict[str, Any] = {f"field_{i}": hint_default for i, hint_default in enumerate(schema(target).values())}
    rules = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)
    return create_model("Options", __config__=rules, **numbered)


def check_node(node: Node | CheckedNode, where: str) -> CheckedNode:
    """The target and the options of a node at `where`; a node that is already checked is returned as it is.

    Raises ConfigError with every fault of the options at once.
    """
    if isinstance(node, CheckedNode):
        return node
    if "_target_" not in node:
        raise ConfigError(f"{where}: has no _target_, so nothing says what to build")
    target = locate(str(node["_target_"]), f"{where}._target_")
    fields, model = schema(target), _model(target)
    options = {str(k): _tuples_for(fields.get(str(k)), v) for k, v in node.items() if k != "_target_"}
    names = {f"field_{i}": name for i, name in enumerate(fields)}
    keys = {name: key for key, name in names.items()}
    try:
        model(**{keys.get(name, name): value for name, value in options.items()})
    except ValidationError as error:
        raise ConfigError("; ".join(faults_of(error, names, where))) from None
    return CheckedNode(target, options, where)


def construct(node: Node | CheckedNode, *spec: Any, where: str = "configuration") -> Any:
    """The object of a node: its target called with `spec` positionally and the node's options.

    Raises ConfigError if the options do not fit or the constructor refuses their values.
    """
    return check_node(node, where).build(*spec)


def nearest(name: str, known: list[str]) -> str:
    """'; did you mean x?' where one of `known` is close to `name`, else the list of what there is."""
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(sorted(known))}" if known else ""


def _tuples_for(field: tuple[Any, Any] | None, value: Any) -> Any:
    """YAML knows lists only; a strict schema that asks for a tuple gets one."""
    if field is not None and isinstance(value, list) and "tuple" in str(field[0]):
        return tuple(value)
    return value


def faults_of(error: ValidationError, names: dict[str, str], where: str) -> list[str]:
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
