"""From a node of the configuration to an object: which code it may name, and whether its options fit.

A node is a mapping with a `_target_`. The keyword-only arguments of the target are the schema of the node. A node is
checked once and is a `CheckedNode` from then on. Nothing here imports torch, so that wrong options are reported before
the slow imports. Only code of allowed packages is loaded: a file alone never adds one, the command line or the caller
does. And a node may only name what belongs at its place (`KINDS`): a data node a data module, and so on.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from sliceformer_lab.config.plugins import plugins
from sliceformer_lab.errors import ConfigError as ConfigError  # which most callers import from here

ALLOWED_PREFIXES = ("sliceformer_lab.", "pytorch_lightning.")


KINDS = {  # the base class of what a node may name, by the first part of the node's place
    "task": "sliceformer_lab.training.interfaces.TaskModule",
    "data": "sliceformer_lab.data.base.DataModule",
    "encoder": "sliceformer_lab.encoder.encoder_options.EncoderOptions",
    "block": "sliceformer_lab.encoder.base.EncoderBlock",
    "attention": "sliceformer_lab.attention.base.Attention",
    "optim": "sliceformer_lab.training.optim.OptimOptions",
    "pretrain": "sliceformer_lab.training.pretraining.pretrain_options.PretrainOptions",
    "trainer": "sliceformer_lab.training.trainer.Trainer",
    "callbacks": "pytorch_lightning.Callback",
    "logger": "pytorch_lightning.loggers.Logger",
    "launcher": "sliceformer_lab.sweeps.queue.Launcher",
    "analysis": "sliceformer_lab.commands.inspect.base.Analysis",
}
_LOGGERS = "sliceformer_lab.training.results.loggers"
INSTEAD = {  # functions and a class that a node may name too
    "attention": ("sliceformer_lab.config.hybrid.Hybrid",),
    "callbacks": ("sliceformer_lab.callbacks.progress.progress",),
    "logger": (f"{_LOGGERS}.wandb_logger", f"{_LOGGERS}.trackio_logger", f"{_LOGGERS}.tensorboard_logger"),
}
MODEL_NODES = ("encoder", "block", "attention", "optim")
_allowed_too: tuple[str, ...] = ()

Node = Mapping[str, Any]


@dataclass(frozen=True)
class CheckedNode:
    """A class or function and options that fit its signature."""

    target: Any
    options: Mapping[str, Any]
    where: str  # the node's place in the configuration, for messages

    @property
    def name(self) -> str:
        """The dotted name of the target."""
        return f"{self.target.__module__}.{self.target.__qualname__}"

    def option(self, name: str) -> Any:
        """The value of an option, by default that of the signature; None if the target has no such option."""
        _, default = schema(self.target).get(name, (None, None))
        return self.options.get(name, default)

    def build(self, *spec: Any) -> Any:
        """The target called with `spec` positionally and the options.

        Raises ConfigError if it does not take these arguments, or refuses the values of the options.
        """
        try:
            inspect.signature(self.target).bind(*spec, **self.options)
        except TypeError as error:
            raise ConfigError(f"{self.where}: {self.name} cannot be called as the framework does ({error})") from error
        try:
            return self.target(*spec, **self.options)
        except ValueError as error:
            raise ConfigError(f"{self.where}: {error}") from error


@contextmanager
def allowed_targets(prefixes: Any) -> Iterator[None]:
    """Lets `_target_` name code of these packages too. Call it only with what the command line or the caller gives.

    Raises ConfigError if it is not a list of packages.
    """
    global _allowed_too
    given = [p for p in prefixes if isinstance(p, str) and p.strip(".")] if isinstance(prefixes, list | tuple) else None
    if given is None or len(given) < len(prefixes):
        raise ConfigError(f"allow_targets: given {prefixes!r}, should be a list of packages such as [my_package.]")
    before = _allowed_too
    _allowed_too += tuple(prefix if prefix.endswith(".") else f"{prefix}." for prefix in given)
    try:
        yield
    finally:
        _allowed_too = before


def allowed_too() -> tuple[str, ...]:
    """The packages that `allowed_targets` adds at the moment."""
    return _allowed_too


def locate(target: str, where: str = "_target_") -> Any:
    """The class or function of a dotted name. Raises ConfigError if it is not allowed or not there."""
    allowed = (*ALLOWED_PREFIXES, *(f"{plugin.package}." for plugin in plugins()), *_allowed_too)
    if not target.startswith(allowed):
        package = target.split(".")[0]
        raise ConfigError(
            f"{where}: {target} is code outside the allowed packages "
            f"({', '.join(prefix.rstrip('.') for prefix in allowed)}); "
            f"if you trust it, say 'allow_targets=[{package}.]' on the command line, or give it to load_run"
        )
    module, _, name = target.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{where}: {target} cannot be loaded ({error})") from error
    is_kind = inspect.isclass(found) or inspect.isroutine(found)  # not an object that can be called
    if not is_kind or not f"{getattr(found, '__module__', None)}.".startswith(allowed):
        raise ConfigError(f"{where}: {target} is not a class or function that is defined in an allowed package")
    return found


def _check_kind(target: Any, where: str) -> None:
    """Raises ConfigError if a class or function does not belong at this place of a configuration."""
    place = where.partition(".")[0]
    name = f"{target.__module__}.{target.__qualname__}"
    if name in INSTEAD.get(place, ()):
        return
    if not (isinstance(target, type) and issubclass(target, locate(KINDS[place]))):
        raise ConfigError(f"{where}._target_: {name} is not a subclass of {KINDS[place]}")
    if inspect.isabstract(target):
        raise ConfigError(f"{where}._target_: {name} is abstract; name a subclass that can be built")


@cache
def schema(target: Any) -> dict[str, tuple[Any, Any]]:
    """The options that a node may set of a class or function: name -> (type, default or ...).

    Under our convention these are the keyword-only arguments; the framework passes the positional ones. The convention
    holds for our code, for classes that inherit from it, and for code that takes an object of ours positionally, such
    as a callback with a RunContext. In a library's code the options are all named arguments.
    """
    kin = [*(inspect.getmro(target) if inspect.isclass(target) else [target]), *positional_types(target).values()]
    ours = any(str(getattr(kind, "__module__", None)).startswith("sliceformer_lab.") for kind in kin)
    kinds = [inspect.Parameter.KEYWORD_ONLY, *([] if ours else [inspect.Parameter.POSITIONAL_OR_KEYWORD])]
    return {
        p.name: (hint, ... if p.default is p.empty else p.default)
        for p, hint in _list_parameters(target)
        if p.kind in kinds
    }


def positional_types(target: Any) -> dict[str, Any]:
    """The arguments of a class or function that can be given by position: name -> type."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return {p.name: hint for p, hint in _list_parameters(target) if p.kind in kinds}


@cache
def _list_parameters(target: Any) -> tuple[tuple[inspect.Parameter, Any], ...]:
    """The parameters of a class or function, each with its type; `**options` means the parameters of the base class.

    Raises ConfigError if a type has no such name.
    """
    function = target.__init__ if inspect.isclass(target) else target
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise ConfigError(
            f"{target.__module__}.{target.__qualname__}: the types of its arguments cannot be read ({error}); import "
            "them outside `if TYPE_CHECKING`"
        ) from error
    found = inspect.signature(function).parameters.values()
    own = tuple((p, hints.get(p.name, Any)) for p in found if p.name != "self")
    if not inspect.isclass(target) or all(p.kind is not p.VAR_KEYWORD for p, _ in own):
        return own
    base = next(kin for kin in target.__mro__[1:] if "__init__" in vars(kin))  # which takes the other options
    passed_on = () if base is object else _list_parameters(base)
    return (*own, *((p, hint) for p, hint in passed_on if p.name not in {known.name for known, _ in own}))


@cache
def _build_model(target: Any) -> type[BaseModel]:
    """The pydantic model of a target's options, which are aliases: pydantic reserves some names of fields."""
    numbered: dict[str, Any] = {
        f"field_{i}": (hint, Field(default, alias=name))
        for i, (name, (hint, default)) in enumerate(schema(target).items())
    }
    rules = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)
    return create_model("Options", __config__=rules, **numbered)


def check_node(node: Node | CheckedNode, where: str) -> CheckedNode:
    """The target and the options of a node at `where`; a node that is already checked is returned as it is.

    Raises ConfigError for a target that does not belong there, and with every fault of the options at once.
    """
    if isinstance(node, CheckedNode):
        return node
    if not isinstance(node, Mapping):
        raise ConfigError(f"{where}: given {node!r}, should be options with a _target_")
    if "_target_" not in node:
        raise ConfigError(f"{where}: has no _target_, so nothing says what to build")
    target = locate(str(node["_target_"]), f"{where}._target_")
    _check_kind(target, where)
    return check_options(target, {key: value for key, value in node.items() if key != "_target_"}, where)


def check_options(target: Any, options: Mapping[str, Any], where: str) -> CheckedNode:
    """A target that our own code names, with options that fit it. Raises ConfigError with every fault at once."""
    fields = schema(target)
    options = {str(k): _tuples_for(fields.get(str(k)), v) for k, v in options.items()}
    if passed := [name for name in options if name in positional_types(target) and name not in fields]:
        raise ConfigError(
            f"{where}.{passed[0]}: {target.__qualname__} takes it positionally, as what the framework passes; write * "
            "before the options in the constructor"
        )
    try:
        _build_model(target).model_validate(options)
    except ValidationError as error:
        raise ConfigError("; ".join(faults_of(error, list(fields), where))) from None
    return CheckedNode(target, options, where)


def build_object(node: Node | CheckedNode, *spec: Any, where: str) -> Any:
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


def faults_of(error: ValidationError, known: list[str], where: str) -> list[str]:
    """A sentence for each option at fault; `known` are those that there are."""
    faults: dict[str, str] = {}
    for fault in error.errors():
        first, *inner = map(str, fault["loc"])
        inner = [part for part in inner if part.isdigit() or not where]  # of a node's unions, pydantic names the type
        path = ".".join(filter(None, [where, first, *inner]))
        if fault["type"] == "extra_forbidden":
            faults[path] = f"there is no such option{nearest(first, known)}"
        elif fault["type"] == "missing":
            faults[path] = "a value is needed"
        else:
            wanted = fault["msg"].removeprefix("Input ").removeprefix("Value error, ")
            # a union has a fault for each of its types
            faults[path] = f"{faults[path]} or {wanted}" if path in faults else f"given {fault['input']!r}, {wanted}"
    return [f"{path}: {text}" for path, text in faults.items()]
