"""The jobs of a sweep as one table: options that vary, metrics, cost and digests, also of jobs that failed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from sliceformer_lab.runs.collect import Collection, RunRecord, collect
from sliceformer_lab.runs.groups import Table, format_option, tables

COUNTS = ("multiply_adds", "comparisons")  # per sample
COSTS = ("parameters", *COUNTS, "samples_per_second", "peak_memory_gb", "wall_seconds")
DIGEST_COLUMNS = ("git_commit", "data_sha256", "test_sha256")  # of the code, the data and its test split

Record = dict[str, Any]


def load_sweep(folder: str | Path) -> pd.DataFrame:
    """The runs below a folder, a row each, with the columns of `job_records`. Raises LabError."""
    found = collect(Path(folder).expanduser().resolve())
    return pd.DataFrame(job_records(found, tables(found, (), None)))


def job_records(found: Collection, made: Iterable[Table]) -> list[Record]:
    """A record for each job of a sweep, with failed and missing jobs; all records have the same keys.

    The columns include each option in which the jobs differ, and each metric.
    """
    differing = sorted({name for table in made for row in table.rows for name in row.shown})
    metrics = sorted({name for run in found.runs for name in run.summary.metrics})
    names = ["job", "task", "attention", *differing, "seed", "split_seed", "status", "error"]
    empty = dict.fromkeys([*names, *metrics, *COSTS, *DIGEST_COLUMNS])
    records = [_job_record(run, differing, metrics) for run in found.runs]
    records += [{"job": name, "status": "unreadable", "error": why} for name, why in found.unreadable.items()]
    records += [{"job": str(job.job), "status": "missing", "error": " ".join(job.overrides)} for job in found.missing]
    return sorted((empty | record for record in records), key=lambda record: _number_first(record["job"]))


def _job_record(run: RunRecord, differing: Iterable[str], metrics: Iterable[str]) -> Record:
    summary = run.summary
    return {
        "job": run.name,
        "task": run.task,
        "attention": run.attention,
        **{name: format_option(run.options[name]) for name in differing if name in run.options},
        "seed": summary.seed,
        "split_seed": summary.split_seed,
        "status": run.status,
        "error": summary.error,
        **{name: summary.metrics.get(name) for name in metrics},
        **{name: summary.cost_per_sample.get(name) for name in COUNTS},
        **{name: getattr(summary, name) for name in COSTS if name not in COUNTS},
        "git_commit": summary.git_commit,
        "data_sha256": run.protocol.sha256,
        "test_sha256": summary.digests.get("test"),
    }


def _number_first(name: str) -> tuple[float, str]:
    """A sort key for job folders, whose names begin with a number."""
    number = name.partition("-")[0]
    return (float(number) if number.isdigit() else math.inf, name)
