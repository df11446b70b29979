"""The reference rows of a table: simple models that runs fitted on their own splits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from sliceformer_lab.measures.metric_scale import less_is_better
from sliceformer_lab.runs.collect import RunRecord


@dataclass(frozen=True)
class ReferenceRow:
    """A simple model with its mean over the splits of a table's runs."""

    name: str
    value: float
    seconds: float | None  # to fit it


def skipped_of(runs: Iterable[RunRecord]) -> dict[str, str]:
    """The name of each reference that no run on some split could score, and the reason that the last run gives."""
    rows = [(run.unit[1], row) for run in runs for row in run.summary.references]
    scored = {(split, row.name) for split, row in rows if row.metrics}
    return {row.name: row.skipped for split, row in rows if row.skipped and (split, row.name) not in scored}


def references_of(runs: Iterable[RunRecord], metric: str) -> list[ReferenceRow]:
    """The references that the runs recorded with a value of the metric and skipped on no split, best first."""
    runs = list(runs)
    skipped = skipped_of(runs)
    values: dict[str, dict[object, float]] = defaultdict(dict)  # by name and split, however many runs a split has
    seconds: dict[str, float] = {}
    for split, row in ((run.unit[1], row) for run in runs for row in run.summary.references):
        if (value := (row.metrics or {}).get(metric)) is not None:
            values[row.name][split] = value
            if row.seconds is not None:
                seconds[row.name] = row.seconds
    found = [
        ReferenceRow(name, fmean(known.values()), seconds.get(name))
        for name, known in values.items()
        if name not in skipped
    ]
    return sorted(found, key=lambda one: one.value, reverse=not less_is_better(metric))
