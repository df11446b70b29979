"""The reference rows of a table: simple models that runs fitted on their own splits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from sliceformer_lab.measures.metric_scale import less_is_better
from sliceformer_lab.runs.collect import RunRecord
from sliceformer_lab.runs.run_summary import ReferenceModel


@dataclass(frozen=True)
class ReferenceRow:
    """A simple model with its mean over the splits of a table's runs."""

    name: str
    value: float
    seconds: float | None  # to fit it


def skipped_of(runs: Iterable[RunRecord]) -> dict[str, str]:
    """The name of each reference that no run could score, and the reason that the last run gives."""
    rows = _rows_of(runs)
    scored = {row.name for row in rows if row.metrics}
    return {row.name: row.skipped for row in rows if row.skipped and row.name not in scored}


def references_of(runs: Iterable[RunRecord], metric: str) -> list[ReferenceRow]:
    """The references that the runs recorded with a value of the metric, best first."""
    values: dict[str, list[float]] = defaultdict(list)
    seconds: dict[str, float] = {}
    for row in _rows_of(runs):
        if (value := (row.metrics or {}).get(metric)) is not None:
            values[row.name].append(value)
            if row.seconds is not None:
                seconds[row.name] = row.seconds
    found = [ReferenceRow(name, fmean(known), seconds.get(name)) for name, known in values.items()]
    return sorted(found, key=lambda one: one.value, reverse=not less_is_better(metric))


def _rows_of(runs: Iterable[RunRecord]) -> list[ReferenceModel]:
    return [row for run in runs for row in run.summary.references]
