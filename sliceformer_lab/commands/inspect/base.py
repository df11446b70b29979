"""The interface of an analysis, and its result: a table, figures and a summary."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from rich.table import Table

from sliceformer_lab.commands.inspect.models import Study


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
