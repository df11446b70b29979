"""What an analysis is: options in, a table, figures and a summary out."""

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
    """What an analysis found; `run` writes and prints it."""

    table: pd.DataFrame  # long: a row for every measured value
    figures: Mapping[str, Figure]  # by the name of the file, without its ending
    summary: Sequence[Table]  # for the terminal
    facts: Mapping[str, Any] = field(default_factory=dict)  # what the JSON file says beside runs and options


class Analysis(ABC):
    """One analysis. The keyword-only arguments of its constructor are the options of conf/analysis/<name>.yaml."""

    @abstractmethod
    def findings(self, study: Study) -> Findings:
        """Measure the models of the study, which is empty if `runs` is null. Raises LabError."""
