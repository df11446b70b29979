"""Every promise of docs/guarantees.md names a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_promise_names_a_test_that_exists() -> None:
    page = (ROOT / "docs" / "guarantees.md").read_text()
    trees = [ast.parse(file.read_text()) for file in (ROOT / "tests").rglob("test_*.py")]
    known = {node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)}
    named = re.findall(r"(?:::|`)(test_\w+)`", page)
    assert named and [test for test in named if test not in known] == []
    promises = re.findall(r"^- (?:.+\n)(?:  .+\n)*", page, re.MULTILINE)
    assert [promise for promise in promises if "test_" not in promise] == []
