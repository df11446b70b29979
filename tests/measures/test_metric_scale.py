"""The direction of a metric follows from its name, and is the one by which its task selects."""

from __future__ import annotations

import pytest

from sliceformer_lab.measures.metric_scale import PERCENT, format_number, format_signed, less_is_better
from sliceformer_lab.tasks.language_model import LanguageModel
from sliceformer_lab.tasks.masked_balls import MaskedBalls
from sliceformer_lab.tasks.points import PointSegmentation
from sliceformer_lab.tasks.segmentation import ImageSegmentation
from sliceformer_lab.tasks.targets import Classes, Labels, Numbers

SELECTING = (Classes, ImageSegmentation, Labels, LanguageModel, MaskedBalls, Numbers, PointSegmentation)


@pytest.mark.parametrize("kind", SELECTING, ids=lambda kind: kind.__name__)
def test_the_name_of_a_selection_metric_says_its_direction(kind: type[Classes | Labels | LanguageModel]) -> None:
    assert less_is_better(f"val/{kind.monitor}") == (kind.monitor_mode == "min")


@pytest.mark.parametrize("metric", ["test/perplexity", "test/loss", "test/rmse", "test/mae_best_test_epoch"])
def test_less_of_an_error_is_better(metric: str) -> None:
    assert less_is_better(metric) and not less_is_better("test/accuracy")


@pytest.mark.parametrize(
    ("value", "half_width", "shown"),
    [
        (0.531274, 0.0123, "0.531"),
        (0.531274, 0.123, "0.53"),
        (12345.678, 321.0, "12346"),
        (0.0012345, 0.000067, "0.001234"),
        (0.531274, 0.0, "0.5313"),
        (0.531274, None, "0.5313"),
        (None, 0.1, ""),
    ],
)
def test_a_number_has_the_digits_that_its_interval_leaves_certain(
    value: float | None, half_width: float | None, shown: str
) -> None:
    assert format_number(value, 1.0, half_width) == shown
    if value is not None:
        assert format_signed(-value, 1.0, half_width) == f"-{shown}"
        assert format_number(value, PERCENT, half_width) == f"{100 * value:.2f}"
