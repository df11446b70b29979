"""The interface of an analysis, and its result: a table, charts and a summary."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pandas as pd
from rich.table import Table

from sliceformer_lab.commands.inspect.models import Group, Opened, Study
from sliceformer_lab.commands.inspect.panels import name_rows
from sliceformer_lab.measures.drawing import Chart


@dataclass(frozen=True)
class Findings:
    """The result of an analysis."""

    table: pd.DataFrame  # long: a row for every measured value
    charts: Sequence[Chart]
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
    def charts(self, group: Group, table: pd.DataFrame) -> Sequence[Chart]:
        """The charts of a group, from its rows with their names in the column ROW."""

    @abstractmethod
    def summary(self, group: Group, table: pd.DataFrame) -> Table:
        """What the terminal shows of a group."""

    def findings(self, study: Study) -> Findings:
        """One table over all groups, and charts and a summary for each group with a model.

        Of several groups each chart says the number of its group; so do its files from the second group of a task on.
        """
        table = self.measurements(study)
        tables = {group.title: table[table["group"] == group.title] for group in study.groups if len(table)}
        shown = [(group, tables[group.title]) for group in study.groups if len(tables.get(group.title, ()))]
        charts: dict[str, Chart] = {}
        for group, rows in shown:
            number = study.groups.index(group) + 1
            for chart in self.charts(group, name_rows(rows)):
                name = f"{chart.name}-group{number}" if chart.name in charts else chart.name
                heading = f"Group {number}: {chart.heading}" if len(shown) > 1 else chart.heading
                heading += f" ({group.note})" if group.note else ""
                charts[name] = replace(chart, name=name, heading=heading)
        return Findings(table, list(charts.values()), [self.summary(group, rows) for group, rows in shown], self.facts)

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
