"""What the README shows is made from committed results, and its commands work."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from support.attention_checks import CHECKS, Factory

from sliceformer_lab.config.compose import CONF_DIR, compose_root

ROOT = CONF_DIR.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def docs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def commands() -> list[str]:
    """Every command of the README's shell blocks, comments and make's ARGS taken off."""
    lines = [line for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL) for line in block.splitlines()]
    return [line.split("  #")[0].strip() for line in lines if line.startswith("python -m sliceformer_lab")]


def test_readme_table_is_made_from_the_committed_results(docs: ModuleType) -> None:
    shown = README.partition(docs.BEGIN)[2].partition(docs.END)[0].strip()
    assert shown == docs.table(docs.read_results())
    assert shown.count("\n") > 5


def test_interval_is_students(docs: ModuleType) -> None:
    # mean 2, standard deviation 1, t(0.975, 2 degrees of freedom) = 4.3027
    assert docs.interval(docs.np.array([1.0, 2.0, 3.0])) == "2 ± 2.5 (3)"
    assert docs.interval(docs.np.array([0.5])) == "0.5"


def test_page_of_runs_is_made_from_the_committed_results(docs: ModuleType) -> None:
    assert docs.EVERY_RUN.read_text(encoding="utf-8") == docs.every_run(docs.read_results())


def test_readme_is_short() -> None:
    assert len(README.splitlines()) < 200


@pytest.mark.parametrize("command", commands())
def test_readme_command_composes(command: str) -> None:
    _, _, module, *words = shlex.split(command)
    words = [word for word in words if not word.startswith("resume=") and ("=" in word or word.startswith("-"))]
    if "--help" in words or "--cfg" in words:
        return
    if "-m" in words:
        words = [word.partition(",")[0] for word in words if word != "-m"]
    compose_root(words, "config" if module == "sliceformer_lab" else module.rpartition(".")[2])


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_readme_example_of_an_attention_keeps_the_contract(check: Callable[[Factory], None]) -> None:
    example = next(block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "class Reverse" in block)
    names: dict[str, Any] = {}
    exec(compile(example, "README.md", "exec"), names)
    check(names["Reverse"])


def test_readme_has_commands() -> None:
    assert len(commands()) > 8
