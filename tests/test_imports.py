"""Who may import whom, read from the source, and no assert in what ships."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOTS = ("sliceformer_lab", "tasks", "callbacks", "conf")
FILES = sorted(file for package in ROOTS for file in (ROOT / package).rglob("*.py"))
MODULES = {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file for file in FILES}

# A package may import the standard library, itself and these; whatever has no row may import anything but FORBIDDEN.
ALLOWED = {
    "sliceformer_lab.permute": ("torch", "numpy", "triton"),
    "sliceformer_lab.analysis": ("torch", "numpy", "pandas", "scipy", "matplotlib", "sliceformer_lab.errors"),
    "sliceformer_lab.attention": (
        *("torch", "numpy", "pydantic"),
        *(f"sliceformer_lab.{part}" for part in ("permute", "batch", "config", "errors")),
    ),
    "sliceformer_lab.batch": ("torch",),
    "sliceformer_lab.errors": (),
    "sliceformer_lab.config": ("pydantic", "sliceformer_lab.errors"),
    "sliceformer_lab.compose": ("conf", "hydra", "omegaconf", "sliceformer_lab.config"),
}
FORBIDDEN = {
    "sliceformer_lab": ("tasks", "callbacks", "tests"),
    "sliceformer_lab.encoder": ("sliceformer_lab.data", "hydra", "omegaconf", "pytorch_lightning"),
    "sliceformer_lab.data": ("sliceformer_lab.encoder", "sliceformer_lab.attention", "hydra", "omegaconf"),
    "tasks": ("callbacks", "tests"),
    "callbacks": ("tasks", "tests", "sliceformer_lab.encoder", "sliceformer_lab.data"),
    "conf": ("sliceformer_lab", "tasks", "callbacks", "torch"),
}
EXCEPTIONS = {
    ("sliceformer_lab.attention", "sliceformer_lab.library"),  # `sliceformer_lab.attention("csp", ...)`
    ("sliceformer_lab.analysis.published", "sliceformer_lab.compose"),  # a recipe's rows are compared with a run
}


def imports(source: str) -> set[str]:
    """Every module that a source names, wherever in it: `from sliceformer_lab import data` is sliceformer_lab.data."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            parts = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= set(parts) if node.module in ROOTS else {node.module or ""}
    return found


def within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def crossings(name: str, source: str) -> set[str]:
    """The imports of module `name` that cross a layer."""
    crossed = set()
    for package, allowed in ALLOWED.items():
        if within(name, (package,)):
            outside = {m for m in imports(source) if m.split(".")[0] not in sys.stdlib_module_names}
            crossed |= {m for m in outside if not within(m, (package, *allowed))}
    for package, forbidden in FORBIDDEN.items():
        if within(name, (package,)):
            crossed |= {m for m in imports(source) if within(m, forbidden)}
    return {module for module in crossed if (name, module) not in EXCEPTIONS}


@pytest.mark.parametrize("name", MODULES)
def test_module_stays_within_its_layer(name: str) -> None:
    assert crossings(name, MODULES[name].read_text()) == set()


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("sliceformer_lab.run", "from tasks import image"),
        ("sliceformer_lab.attention.csp", "def f():\n    from sliceformer_lab.encoder import block"),
        ("sliceformer_lab.attention.csp", "from sliceformer_lab import data"),
        ("sliceformer_lab.attention.csp", "import hydra"),
        ("sliceformer_lab.attention.csp", "import pytorch_lightning as pl"),
        ("sliceformer_lab.permute.plain", "from sliceformer_lab.attention.base import Attention"),
        ("sliceformer_lab.analysis.plots", "import seaborn"),
    ],
)
def test_a_crossing_is_caught(name: str, source: str) -> None:
    assert crossings(name, source)


@pytest.mark.parametrize("name", MODULES)
def test_asserts_stand_in_tests_only(name: str) -> None:
    assert not [node.lineno for node in ast.walk(ast.parse(MODULES[name].read_text())) if isinstance(node, ast.Assert)]


def test_composing_options_does_not_import_torch() -> None:
    code = (
        "import sys; from sliceformer_lab.compose import load_option, resolve_hybrid;"
        "resolve_hybrid(load_option('attention', 'hybrid')); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
