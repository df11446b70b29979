"""The jobs of a sweep as one table: options that vary, metrics, cost and digests, also of jobs that failed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from sliceformer_lab.runs.collect import Collection, RunRecord, collect
from sliceformer_lab.runs.groups import Table, format_option, tables

COST_PATHS = {  # column -> path in a summary
    "parameters": ("parameters",),
    "multiply_adds": ("cost_per_sample", "multiply_adds"),
    "comparisons": ("cost_per_sample", "comparisons"),
    "samples_per_second": ("samples_per_second",),
    "peak_memory_gb": ("peak_memory_gb",),
    "wall_seconds": ("wall_seconds",),
}
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
    metrics = sorted({name for run in found.runs for name in run.summary.get("metrics") or {}})
    names = ["job", "task", "attention", *differing, "seed", "split_seed", "status", "error"]
    empty = dict.fromkeys([*names, *metrics, *COST_PATHS, *DIGEST_COLUMNS])
    records = [_job_record(run, differing, metrics) for run in found.runs]
    records += [{"job": name, "status": "unreadable", "error": why} for name, why in found.unreadable.items()]
    records += [{"job": str(job.job), "status": "missing", "error": " ".join(job.overrides)} for job in found.missing]
    return sorted((empty | record for record in records), key=lambda record: _number_first(record["job"]))


def _job_record(run: RunRecord, differing: Iterable[str], metrics: Iterable[str]) -> Record:
    return {
        "job": run.name,
        "task": run.task,
        "attention": run.attention,
        **{name: format_option(run.options[name]) for name in differing if name in run.options},
        "seed": run.summary.get("seed"),
        "split_seed": run.summary.get("split_seed"),
        "status": run.status,
        "error": run.summary.get("error"),
        **{name: run.number("metrics", name) for name in metrics},
        **{name: run.number(*path) for name, path in COST_PATHS.items()},
        "git_commit": run.summary.get("git_commit"),
        "data_sha256": run.protocol.get("sha256"),
        "test_sha256": run.split_digest("test"),
    }


def _number_first(name: str) -> tuple[float, str]:
    """A sort key for job folders, whose names begin with a number."""
    number = name.partition("-")[0]
    return (float(number) if number.isdigit() else math.inf, name)
