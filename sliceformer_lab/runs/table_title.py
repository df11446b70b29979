"""The title of a table of runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sliceformer_lab.runs.collect import RunRecord
from sliceformer_lab.runs.papers import FULL_SCALE, TRIAL_OPTIONS
from sliceformer_lab.runs.plain_text import format_range
from sliceformer_lab.runs.score_options import describe_limits


def format_title(runs: Sequence[RunRecord]) -> str:
    """Task, data, sizes and protocol of the runs of one table."""
    finished = next((run for run in runs if run.protocol.is_recorded), None)
    if finished is None:
        data = f"{runs[0].data}, " if runs[0].data else ""
        return f"{runs[0].task}{at_scale(runs)}: {data}no run has finished"
    facts = finished.protocol
    known = [run.protocol for run in runs if run.protocol.is_recorded]
    sizes = ", ".join(
        f"{format_range(counts)} {part}"
        for part in ("train", "val", "test")
        if any(counts := [getattr(one, f"num_{part}") or 0 for one in known])
    )
    trial = ", a trial of a few batches" if any(finished.options.get(name) for name in TRIAL_OPTIONS) else ""
    limits = describe_limits(finished.options)
    unofficial = ", not the official set" if facts.official is False else ""
    untested = ", test set not scored" if not facts.score_test else ""
    mixed = ", begun on other data" if finished.mixed_data else ""
    selection = f", epoch by {finished.selection}" if finished.selection else ""
    name = f"{finished.task}{at_scale(runs)}"
    return f"{name}: {facts.data or 'unknown data'}{unofficial}, {sizes}{limits}{selection}{untested}{trial}{mixed}"


def at_scale(runs: Iterable[RunRecord]) -> str:
    """Such as ', scale small'; '' if all runs have the full scale."""
    scales = sorted({run.scale for run in runs})
    return "" if scales in ([], [FULL_SCALE]) else f", scale {' and '.join(scales)}"
