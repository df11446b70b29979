"""The map of the rooms: who may import whom, how files are named, and what the root holds."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OUTSIDE = {  # rooms of the package once installed, and their folders
    **{name: name for name in ("tasks", "callbacks", "conf")},
    "permute": "packages/shift-sort/shift_sort",  # a package of its own too
}
# Leaves that every room may import.
BASIS = (
    "batch",
    "order",
    "errors",
    "config.option_types",
    "runs.files",
    "runs.plain_text",
    "runs.processes",
    "data.table_files",
)

# Each room may import itself, the standard library, BASIS, and these rooms and packages.
# The order is the order of the floors: a room only names rooms above its own row.
ROOMS: Mapping[str, tuple[str, ...]] = {
    "errors": (),
    "batch": ("torch",),
    "order": ("torch", "numpy"),
    "conf": (),
    "permute": ("torch", "numpy", "triton"),
    "config": ("conf", "hydra", "omegaconf", "pydantic"),
    "measures": (
        *("torch", "numpy", "pandas", "scipy", "matplotlib", "pytorch_lightning"),
        *("sklearn", "skimage", "rdkit", "PIL"),
    ),
    "runs": ("config", "numpy", "pandas", "torch", "hydra", "omegaconf", "yaml", "filelock", "pydantic", "rich"),
    "attention": ("permute", "config", "torch", "numpy", "pydantic"),
    "encoder": ("attention", "config", "torch", "pydantic", "timm", "safetensors", "torch_geometric", "transformers"),
    "data": (
        "measures.molecule_features",
        *("torch", "numpy", "pandas", "scipy", "pydantic", "PIL", "tokenizers", "pytorch_lightning"),
        *("torchvision", "timm", "torch_geometric", "rdkit", "h5py", "trimesh", "filelock"),
    ),
    "training": (
        *("measures", "runs", "config", "attention", "encoder", "data", "torch", "numpy", "pandas", "pydantic"),
        *(
            "pytorch_lightning",
            "timm",
            "lightning_fabric",
            "torchmetrics",
            "omegaconf",
            "hydra",
            "rich",
            "wandb",
            "trackio",
            "safetensors",
        ),
    ),
    "tasks": (
        *("measures", "encoder", "attention.dropout", "data", "training", "config"),
        *("torch", "numpy", "pydantic", "timm", "sklearn"),
        *("pytorch_lightning", "torchmetrics"),
    ),
    "callbacks": (
        *("measures", "training", "runs.folder", "torch", "numpy", "pandas", "pydantic", "pytorch_lightning", "rich"),
    ),
    "sweeps": (
        *("config", "runs", "training.processes.signals", "training.processes.slurm_tasks", "training.build"),
        *("hydra", "omegaconf", "rich", "filelock", "submitit"),
    ),
    "cli": ("sweeps", "config", "runs", "training", "hydra", "omegaconf", "rich", "filelock"),
}
COMMAND = (
    *("cli", "sweeps", "config", "runs", "training", "measures", "encoder", "attention", "permute"),
    *("data.spec", "data.input_files"),
    "commands.compare",  # the room that audit, map and tune share
    *("torch", "numpy", "pandas", "scipy", "matplotlib", "hydra", "omegaconf", "pydantic", "rich", "pytorch_lightning"),
    *("wandb", "wandb_workspaces", "timm", "torchvision", "PIL", "onnxruntime", "onnxscript", "executorch"),
    *("safetensors", "transformers"),
)
TOGETHER = {  # commands that repeat others
    "commands.submit": ("commands.check", "commands.benchmark", "commands.map"),
    "commands.verify": ("commands.submit",),
}
SAME_NAMES = ("__init__.py", "base.py", "command.py")  # that several rooms may have


def modules() -> dict[str, Path]:
    """Every module of the package by its name, with its file."""
    found = {}
    for place, folder in {"": "sliceformer_lab", **OUTSIDE}.items():
        for file in (ROOT / folder).rglob("*.py"):
            parts = file.relative_to(ROOT / folder).with_suffix("").parts
            name = ".".join(part for part in ("sliceformer_lab", place, *parts) if part)
            found[name.removesuffix(".__init__")] = file
    return found


MODULES = modules()


@cache  # three tests read every module
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


def imports(source: str) -> set[str]:
    """Every module or name that a source imports, wherever in it, by its dotted name. `permute` has relative ones."""
    found = set()
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level <= 1, "import from above"
            parts = ("sliceformer_lab.permute" if node.level else "", node.module or "")
            found |= {".".join(part for part in (*parts, alias.name) if part) for alias in node.names}
    return found


def room(name: str) -> str:
    """The room of a dotted name: `attention`, or `commands.report`; of another package its own name."""
    first, *rest = name.split(".")
    if first != "sliceformer_lab" or not rest:
        return first
    return ".".join(rest[:2]) if rest[0] == "commands" and len(rest) > 1 else rest[0]


def faults(name: str, source: str) -> list[str]:
    """What module `name` imports and may not, one line each."""
    own = room(name)
    if own in ("sliceformer_lab", "__main__"):  # the door opens every room
        return []
    basis = () if own == "permute" else BASIS  # which is installed alone too
    of_commands = (*COMMAND, *TOGETHER.get(own, ()))
    allowed = (own, *basis, *(of_commands if own.startswith("commands") else ROOMS.get(own, ())))
    outside = {imported for imported in imports(source) if imported.split(".")[0] not in sys.stdlib_module_names}
    return [f"{name} imports {imported}" for imported in sorted(outside) if not within(imported, allowed)]


def within(imported: str, allowed: tuple[str, ...]) -> bool:
    """Whether a dotted name belongs to one of the allowed rooms, modules or packages."""
    name = imported.removeprefix("sliceformer_lab.")
    return any(name == place or name.startswith(f"{place}.") for place in allowed)


def test_only_the_operator_has_relative_imports_and_it_has_no_others() -> None:
    relative, own = re.compile(r"^\s*from \.", re.MULTILINE), re.compile(r"^\s*(?:from|import) sliceformer_lab", re.M)
    for name, file in MODULES.items():
        wrong = own if room(name) == "permute" else relative
        assert not wrong.search(file.read_text()), name


def test_every_import_is_in_the_table() -> None:
    assert [fault for name, file in MODULES.items() for fault in faults(name, file.read_text())] == []


def test_rooms_only_name_rooms_above_them() -> None:
    names = list(ROOMS)
    assert {room(name) for name in MODULES} - {"sliceformer_lab", "__main__", "commands"} <= {
        *names,
        *(room(name) for name in MODULES if room(name).startswith("commands.")),
    }
    upward = [
        f"{name} names {other}" for floor, name in enumerate(names) for other in ROOMS[name] if other in names[floor:]
    ]
    assert upward == []


def test_no_module_is_imported_in_a_circle() -> None:
    graph = {name: set(edges(name, file.read_text())) for name, file in MODULES.items()}
    while leaves := [name for name, others in graph.items() if not others & graph.keys()]:
        for name in leaves:
            del graph[name]
    assert sorted(graph) == []


def edges(name: str, source: str) -> Iterator[str]:
    """The modules of ours that a module imports."""
    for imported in imports(source):
        while imported not in MODULES and "." in imported:
            imported = imported.rpartition(".")[0]
        if imported in MODULES and imported not in (name, "sliceformer_lab"):
            yield imported


def test_no_two_files_have_one_name() -> None:
    names = Counter(file.name for file in MODULES.values() if file.name not in SAME_NAMES)
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("sliceformer_lab.training.run", "from sliceformer_lab.tasks import image"),
        ("sliceformer_lab.attention.csp", "def f():\n    from sliceformer_lab.encoder import block"),
        ("sliceformer_lab.attention.csp", "import pytorch_lightning as pl"),
        ("sliceformer_lab.permute.plain", "from sliceformer_lab.errors import LabError"),
        ("sliceformer_lab.commands.wandb.save", "from sliceformer_lab.commands.report import lines"),
        ("sliceformer_lab.commands.compare.compare_page", "from sliceformer_lab.commands.audit import command"),
    ],
)
def test_a_crossing_is_caught(name: str, source: str) -> None:
    assert faults(name, source)


def test_no_module_asserts() -> None:
    found = {
        name: [node.lineno for node in ast.walk(parsed(file.read_text())) if isinstance(node, ast.Assert)]
        for name, file in MODULES.items()
    }
    assert {name: lines for name, lines in found.items() if lines} == {}
