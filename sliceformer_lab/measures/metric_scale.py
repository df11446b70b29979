"""Units, bounds and direction of metrics, by name, and their numbers as text."""

from __future__ import annotations

import math
import re

PERCENT = 100.0
# A word of a metric's name -> the smallest and the largest value it can have. The first match counts.
BOUNDS: dict[str, tuple[float, float]] = {
    "accuracy|iou|precision|recall|f1|auc|auroc": (0.0, 1.0),
    "mae|rmse|mse|loss|error|bits|perplexity|chamfer": (0.0, float("inf")),
    "r2": (float("-inf"), 1.0),
    "spearman|pearson|mcc|kappa": (-1.0, 1.0),
}


def factor_of(metric: str) -> float:
    """The factor between a metric and the number that is shown: 100 for percentages, else 1."""
    return PERCENT if re.search("accuracy|iou", metric) else 1.0


def metric_bounds(metric: str) -> tuple[float, float]:
    """The smallest and the largest value that a metric can have; infinite where it has no bound."""
    name = metric.removesuffix("_best_test_epoch").rpartition("/")[2]
    return next((ends for words, ends in BOUNDS.items() if re.search(words, name)), (float("-inf"), float("inf")))


def less_is_better(metric: str) -> bool:
    """Whether a metric is an error or a loss."""
    return metric_bounds(metric) == (0.0, float("inf"))


def format_heading(metric: str) -> str:
    """The head of a metric's column, with its unit."""
    return f"{metric}, %" if factor_of(metric) == PERCENT else metric


def format_value(value: float | None, metric: str) -> str:
    """A metric's value in the unit of its column; '' for None."""
    return format_number(value, factor_of(metric))


def format_number(value: float | None, factor: float, half_width: float | None = None) -> str:
    """A number with the digits that its interval leaves certain; '' for None.

    A percentage has two decimals. Another number has as many as show two digits of the half of its interval, and four
    significant digits if the interval is unknown or without width.
    """
    if value is None:
        return ""
    if factor == PERCENT:
        return f"{factor * value:.2f}"
    if half_width is None or not 0 < half_width < math.inf:
        return f"{value:.4g}"
    return f"{value:.{max(0, 1 - math.floor(math.log10(half_width)))}f}"


def format_signed(value: float, factor: float, half_width: float | None = None) -> str:
    """A difference in the same digits, with its sign."""
    return f"{'+' if value >= 0 else '-'}{format_number(abs(value), factor, half_width)}"


def format_estimate(mean: float, half_width: float, factor: float, *, signed: bool = False) -> str:
    """A mean and half of its interval."""
    written = format_signed if signed else format_number
    return f"{written(mean, factor, half_width)} ± {format_number(half_width, factor, half_width)}"
