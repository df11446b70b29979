"""The interface of an analysis, and its result: a table, figures and a summary."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from rich.table import Table

from sliceformer_lab.commands.inspect.models import Group, Study


@dataclass(frozen=True)
class Findings:
    """The result of an analysis."""

    table: pd.DataFrame  # long: a row for every measured value
    figures: Mapping[str, Figure]  # file name without its suffix -> figure
    summary: Sequence[Table]  # for the terminal
    facts: Mapping[str, Any] = field(default_factory=dict)  # further content of the JSON file


class Analysis(ABC):
    """An analysis. The keyword-only arguments of its constructor are the options of conf/analysis/<name>.yaml."""

    @abstractmethod
    def findings(self, study: Study) -> Findings:
        """Measure the models of the study, which has none if `runs` is null. Raises LabError."""


def findings_by_group(
    study: Study,
    table: pd.DataFrame,
    present: Callable[[Group, pd.DataFrame], tuple[Mapping[str, Figure], Table]],
    facts: Mapping[str, Any] | None = None,
) -> Findings:
    """The findings of a table with the column `group`: `present` makes the figures and the summary of each group."""
    figures: dict[str, Figure] = {}
    summary = []
    for group in study.groups:
        rows = table[table["group"] == group.title] if len(table) else table
        if len(rows):
            of_group, printed = present(group, rows)
            figures |= of_group
            summary.append(printed)
    return Findings(table, figures, summary, facts or {})
