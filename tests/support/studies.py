"""The rows of a study, from its file."""

from __future__ import annotations

from sliceformer_lab.cli.plan import study_rows
from sliceformer_lab.config.compose import written_option


def rows_of_study(name: str) -> list[str]:
    """The rows that a study runs, as words of a command line."""
    plan = written_option("study", name)["hydra"]["callbacks"]["plan"]
    return study_rows(plan.get("rows"), plan.get("recipes"))
