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
    """The name of each reference that no run could score, and the reason that the last run gives."""
    reasons: dict[str, str] = {}
    scored = set()
    for run in runs:
        rows = run.summary.get("references")
        for row in rows if isinstance(rows, list) else []:
            if isinstance(row, dict) and row.get("metrics"):
                scored.add(str(row.get("name")))
            elif isinstance(row, dict) and isinstance(row.get("skipped"), str):
                reasons[str(row.get("name"))] = row["skipped"]
    return {name: reason for name, reason in reasons.items() if name not in scored}


def references_of(runs: Iterable[RunRecord], metric: str) -> list[ReferenceRow]:
    """The references that the runs recorded with a value of the metric, best first."""
    values: dict[str, list[float]] = defaultdict(list)
    seconds: dict[str, float] = {}
    for run in runs:
        rows = run.summary.get("references")
        for row in rows if isinstance(rows, list) else []:
            scores = row.get("metrics") if isinstance(row, dict) else None
            found = scores.get(metric) if isinstance(scores, dict) else None
            if isinstance(found, int | float):
                values[str(row.get("name"))].append(float(found))
                if isinstance(row.get("seconds"), int | float):
                    seconds[str(row.get("name"))] = float(row["seconds"])
    found_all = [ReferenceRow(name, fmean(known), seconds.get(name)) for name, known in values.items()]
    return sorted(found_all, key=lambda one: one.value, reverse=not less_is_better(metric))
