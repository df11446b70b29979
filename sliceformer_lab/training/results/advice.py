"""Warnings of a finished run: what its curves say about the recipe, each with what to try next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sliceformer_lab.measures.metric_scale import metric_bounds
from sliceformer_lab.training.interfaces import TaskModule

if TYPE_CHECKING:
    import pandas as pd

LATE_SHARE = 0.8  # the part of a run after which an improvement is called late
NOTABLE_GAIN = 0.01  # relative improvement of the monitored metric that is worth a longer run
MEMORISED_LOSS_RATIO = 2.0  # validation loss divided by training loss


def warnings_of(task: TaskModule, history: pd.DataFrame, monitor: str | None, best_step: int | None) -> list[str]:
    """The warnings of a run with these metrics (`read_metrics`), whose best checkpoint has `best_step`."""
    if task.num_steps is None or monitor is None or best_step is None or monitor not in history:
        return []
    fault = task.optim.warmup_fault(task.num_steps)
    found = [] if fault is None else [fault]
    found += _late_best(task, history, monitor, best_step)
    found += _warn_of_memorising(history, best_step)
    return found


def _late_best(task: TaskModule, history: pd.DataFrame, monitor: str, best_step: int) -> list[str]:
    """A warning if the last validation of a full-length run is the best one."""
    scores = history[["step", monitor]].dropna()
    total = task.num_steps or 0
    if len(scores) < 2 or best_step < total:
        return []
    longer = f"optim.epochs={2 * task.optim.epochs}" if task.optim.epochs else f"optim.steps={2 * total}"
    earlier, last = scores[scores["step"] < LATE_SHARE * total][monitor], float(scores[monitor].iloc[-1])
    if last in metric_bounds(monitor):  # it cannot improve
        return []
    if len(earlier) and abs(last - (best := float(earlier.agg(task.monitor_mode)))) > NOTABLE_GAIN * abs(best):
        return [
            f"validation was still improving at the end: {monitor} {best:.4f} before the last fifth of the run, "
            f"{last:.4f} at its end; try {longer}"
        ]
    return [f"the best epoch is the last one; a longer run may be better: {longer}"]


def _warn_of_memorising(history: pd.DataFrame, best_step: int) -> list[str]:
    """A warning if the loss at the scored epoch is far lower on the training data."""
    if not {"train/loss", "val/loss"} <= set(history):
        return []
    reached = history[history["step"] < best_step]  # an epoch's metrics are logged at its last step, counted from 0
    losses = [reached[name].dropna() for name in ("train/loss", "val/loss")]
    if not all(map(len, losses)):
        return []
    train, val = (float(loss.iloc[-1]) for loss in losses)
    if not 0 < MEMORISED_LOSS_RATIO * train < val:
        return []
    return [
        f"the training loss is {train:.4f} and the validation loss {val:.4f}: the model memorises its training data; "
        "more dropout, weight decay or augmentation, a smaller model or more data may help"
    ]
