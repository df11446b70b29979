"""The interface of an analysis, and its result: a table, figures and a summary."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pandas as pd
from matplotlib.figure import Figure
from rich.table import Table

from sliceformer_lab.commands.inspect.models import Group, Opened, Study


@dataclass(frozen=True)
class Findings:
    """The result of an analysis."""

    table: pd.DataFrame  # long: a row for every measured value
    figures: Mapping[str, Figure]  # file name without its suffix -> figure
    summary: Sequence[Table]  # for the terminal
    facts: Mapping[str, Any] = field(default_factory=dict)  # further content of the JSON file


class Analysis(ABC):
    """An analysis. The keyword-only arguments of its constructor are the options of conf/analysis/<name>.yaml."""

    facts: ClassVar[Mapping[str, Any]] = {}  # of its findings
    obstacle: ClassVar[str] = "has nothing to measure"  # of a model without rows

    @abstractmethod
    def rows(self, group: Group, opened: Opened) -> Iterator[dict[str, Any]]:
        """The rows of the table for a model at a checkpoint. Raises LabError."""

    @abstractmethod
    def figures(self, group: Group, table: pd.DataFrame) -> Mapping[str, Figure]:
        """The figures of a group, from its rows."""

    @abstractmethod
    def summary(self, group: Group, table: pd.DataFrame) -> Table:
        """What the terminal shows of a group."""

    def findings(self, study: Study) -> Findings:
        """One table over all groups, and figures and a summary for each group with a model."""
        table = self.measurements(study)
        tables = {group.title: table[table["group"] == group.title] for group in study.groups if len(table)}
        shown = [(group, tables[group.title]) for group in study.groups if len(tables.get(group.title, ()))]
        figures: dict[str, Figure] = {}
        for group, rows in shown:
            for name, figure in self.figures(group, rows).items():  # groups of one task have the same names
                figures[f"{name}-group{study.groups.index(group) + 1}" if name in figures else name] = figure
        return Findings(table, figures, [self.summary(group, rows) for group, rows in shown], self.facts)

    def measurements(self, study: Study) -> pd.DataFrame:
        """A row for every measured value of every model, with the facts of the model; one without any is left out."""
        found = []
        for group in study.groups:
            for opened in study.open_models(group):
                rows = [{"group": group.title, **opened.facts, **row} for row in self.rows(group, opened)]
                if not rows:
                    name = f"{opened.source.name} ({opened.checkpoint})"
                    study.left_out[name] = f"{opened.source.label} {self.obstacle}"
                found += rows
        return pd.DataFrame(found)
