"""Comparisons and maps whose runs are only written, and what they find."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sliceformer_lab.commands.compare import steps
from sliceformer_lab.commands.compare.compare_options import CompareOptions
from sliceformer_lab.sweeps.queue import Launcher


def audit(folder: Path, launcher: Launcher, **options: Any) -> dict[str, Any]:
    """Audits csp against no mixing in FOLDER/audit, unless `options` say otherwise; returns its results.json."""
    chosen: dict[str, Any] = {"subject": "csp", "against": ("identity",), "seeds": 6} | options
    words = (*chosen.pop("words", ()), f"paths.data={folder / 'data'}")
    steps.run_comparison("audit", CompareOptions(folder=str(folder / "audit"), words=words, **chosen), launcher)
    return read_results(folder / "audit")


def read_results(folder: Path) -> dict[str, Any]:
    """The results.json of a comparison."""
    return json.loads((folder / "report" / "results.json").read_text(encoding="utf-8"))


def page_of(folder: Path) -> str:
    """The page of the audit in FOLDER/audit."""
    return (folder / "audit" / "report" / "audit.md").read_text(encoding="utf-8")
