"""What a sweep prints before its first job: its jobs, what is done already, and an estimate of time and disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from hydra.core.utils import env_override

from sliceformer_lab.runs.job_state import state_of
from sliceformer_lab.runs.plain_text import counted
from sliceformer_lab.runs.sweep import PlannedJob
from sliceformer_lab.sweeps.estimate import Measure, estimate_sweep
from sliceformer_lab.sweeps.plan import SweepPlan
from sliceformer_lab.sweeps.queue import Launcher


def preview(plan: SweepPlan, launcher: Launcher, measure: Measure) -> Iterator[str]:
    """The lines to print, each as soon as it is known: the estimate may train for half a minute."""
    title = f"study {plan.study}" if plan.study else "sweep"
    state = {job: state_of(plan.folder / job.name) for job in plan.jobs}
    states = Counter(found.status for found in state.values())
    left = [job for job, found in state.items() if not found.is_final]
    known = ", ".join(f"{number} {status}" for status, number in states.items() if status != "planned")
    yield f"{title} at scale {plan.scale}: {counted(len(plan.jobs), 'job')}" + (f" ({known})" if known else "")
    yield from (f"  {key}: {', '.join(values)}" for key, values in _list_swept(plan.jobs).items())
    yield from (f"  left out by skip({rule}): {counted(number, 'job')}" for rule, number in plan.skipped.items())
    yield from ([f"  {launcher.remark}"] if launcher.remark else [])
    yield f"  in {plan.folder}"
    measure_here = measure if launcher.measures else None
    with env_override(dict(launcher.variables)):
        costs = estimate_sweep(left, plan.outputs, min(launcher.places, len(left)), measure_here, plan.modules)
    yield from costs
    yield "  if it is stopped, the same command goes on and leaves finished jobs alone"


def _list_swept(jobs: Sequence[PlannedJob]) -> dict[str, list[str]]:
    """The keys in which jobs differ, with their values."""
    values: dict[str, dict[str, None]] = {}
    for word in (word for job in jobs for word in job.words):
        key, _, value = word.partition("=")
        values.setdefault(key, {})[value] = None
    return {key: list(found) for key, found in values.items() if len(found) > 1}
