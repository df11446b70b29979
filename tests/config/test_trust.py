"""What a node of a configuration may name: the classes that belong at its place, and nothing else that is installed."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.loggers import Logger

from sliceformer_lab.attention.base import Attention
from sliceformer_lab.commands.inspect.base import Analysis
from sliceformer_lab.config.hybrid import Hybrid
from sliceformer_lab.config.schema import ALLOWED_PREFIXES, KINDS, ConfigError, allowed_targets, check_node
from sliceformer_lab.data.base import DataModule
from sliceformer_lab.encoder.base import EncoderBlock
from sliceformer_lab.encoder.encoder_options import EncoderOptions
from sliceformer_lab.sweeps.queue import Launcher
from sliceformer_lab.training.interfaces import TaskModule
from sliceformer_lab.training.optim import OptimOptions
from sliceformer_lab.training.pretraining.pretrain_options import PretrainOptions
from sliceformer_lab.training.trainer import Trainer

BELONGS: dict[str, tuple[type, ...]] = {
    "task": (TaskModule,),
    "data": (DataModule,),
    "encoder": (EncoderOptions,),
    "block": (EncoderBlock,),
    "attention": (Attention, Hybrid),
    "optim": (OptimOptions,),
    "pretrain": (PretrainOptions,),
    "trainer": (Trainer,),
    "callbacks": (Callback,),
    "logger": (Logger,),
    "launcher": (Launcher,),
    "analysis": (Analysis,),
}
FACTORIES = {
    "callbacks": {"sliceformer_lab.callbacks.progress.progress"},
    "logger": {
        f"sliceformer_lab.training.results.loggers.{name}_logger" for name in ("wandb", "trackio", "tensorboard")
    },
}
HEAVY = ("sliceformer_lab.commands.wandb", "sliceformer_lab.commands.report", "pytorch_lightning.demos")


def modules(package: ModuleType) -> Iterator[ModuleType]:
    """Every module of a package that can be imported here, apart from those that take seconds."""
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not found.name.startswith(HEAVY):
            try:
                yield import_module(found.name)
            except (ImportError, RuntimeError):  # of a package or a machine that we lack
                continue


@cache
def callables() -> list[str]:
    """The dotted name of every public callable in the packages that a node may name."""
    packages = [import_module(prefix.rstrip(".")) for prefix in ALLOWED_PREFIXES]
    found = {module for package in packages for module in (package, *modules(package))}
    return sorted(f"{m.__name__}.{name}" for m in found for name, value in vars(m).items() if callable(value))


def accepted(target: str, place: str) -> Any:
    """What a node at `place` that names `target` would call; None if the node is refused for its name."""
    try:
        return check_node({"_target_": target}, place).target
    except ConfigError as error:
        return None if "_target_:" in str(error) else target  # a fault of its options: the name was accepted


@pytest.mark.parametrize("place", KINDS)
def test_of_all_installed_callables_a_node_accepts_only_those_of_its_kind(place: str) -> None:
    assert len(callables()) > 2000 and KINDS.keys() == BELONGS.keys()
    wrong = []
    for target in callables():
        found = accepted(target, place)
        if isinstance(found, str):
            module, _, name = found.rpartition(".")
            found = getattr(import_module(module), name)
        named = f"{getattr(found, '__module__', '')}.{getattr(found, '__qualname__', '')}"
        belongs = isinstance(found, type) and issubclass(found, BELONGS[place])
        if not (found is None or belongs or named in FACTORIES.get(place, ())):
            wrong.append(target)
    assert wrong == []


@pytest.mark.parametrize("place", KINDS)
@pytest.mark.parametrize(
    "target",
    [
        *("os.system", "subprocess.Popen", "builtins.eval", "importlib.import_module", "os.path.join"),
        *("pytorch_lightning.cli.instantiate_class", "pytorch_lightning.utilities.imports._try_import_module"),
        *("torch.load", "torch.nn.Linear", "torch.optim.Adam", "timm.create_model", "hydra.utils.instantiate"),
        *(
            "sliceformer_lab.config.schema.locate",
            "sliceformer_lab.cli.main.os.system",
            "sliceformer_lab.__main__.main",
        ),
        *("", ".", "sliceformer_lab", "sliceformer_lab.", "sliceformer_lab..x", "pytorch_lightning. os", "\0", "../x"),
    ],
)
def test_free_functions_and_foreign_names_are_refused_at_every_place(place: str, target: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{place}\._target_: "):
        check_node({"_target_": target}, place)


def test_permission_to_name_a_package_is_no_permission_to_call_its_functions() -> None:
    with allowed_targets(["json"]), pytest.raises(ConfigError, match=r"json\.loads is not a subclass of"):
        check_node({"_target_": "json.loads", "s": "1"}, "data")


@pytest.mark.parametrize("place", ["task", "data", "block", "attention", "analysis"])
def test_an_abstract_base_is_refused(place: str) -> None:
    with pytest.raises(ConfigError, match="is abstract; name a subclass"):
        check_node({"_target_": KINDS[place]}, place)


@pytest.mark.parametrize("target", [None, 3, ["os.system"], {"_target_": "os.system"}, True])
def test_a_target_that_is_no_name_is_refused(target: object) -> None:
    with pytest.raises(ConfigError, match=r"^data\._target_: "):
        check_node({"_target_": target}, "data")
