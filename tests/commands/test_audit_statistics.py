"""The verdicts of an audit, its trials and its step budgets, against brute force and properties."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from sliceformer_lab.commands.audit.sensitivity import expected_best, lr_width, sensitivities
from sliceformer_lab.commands.audit.step_times import StepTime, Times, time_words
from sliceformer_lab.commands.audit.trial_points import (
    Point,
    Trial,
    chosen_trial,
    first_points,
    sides_to_grow,
    top_trial,
)
from sliceformer_lab.commands.audit.verdicts import Pairs, equivalence_p, outcomes, pairs_needed
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.measures.statistics import smallest_by_signs

RATES = (1e-3, 3e-3, 1e-2)


def pairs(against: str, values: Sequence[float], margin: float | None = 0.005, **changes: object) -> Pairs:
    return Pairs(against, dict(enumerate(values, 100)), margin, **changes)  # type: ignore[arg-type]


def trials(*means: float, rates: Sequence[float] = RATES) -> list[Trial]:
    return [Trial(Point(rate), (mean,)) for rate, mean in zip(rates, means, strict=True)]


def brute_sign_flip(values: Sequence[float]) -> float:
    sums = [
        abs(sum(s * v for s, v in zip(signs, values, strict=True))) for signs in itertools.product((1, -1), repeat=8)
    ]
    return float(np.mean([total >= abs(sum(values)) - 1e-12 for total in sums]))


def test_p_values_are_those_of_all_sign_flips_stepped_down_over_the_whole_family() -> None:
    generator = np.random.default_rng(0)
    family = [
        pairs(name, generator.normal(shift, 0.01, 8).tolist())
        for name, shift in zip("abc", (0.03, 0.01, 0), strict=True)
    ]
    found = outcomes([*family, pairs("d", [], obstacle="it failed")])
    raw = [brute_sign_flip(list(one.differences.values())) for one in family]
    assert [one.p for one in found[:3]] == pytest.approx(raw)
    largest, order = 0.0, sorted(range(3), key=lambda i: raw[i])
    for rank, place in enumerate(order):  # a declared comparison without a test counts, with p = 1
        largest = max(largest, min(1.0, (4 - rank) * raw[place]))
        assert found[place].holm_p == pytest.approx(largest)
    assert (found[3].verdict, found[3].reason, found[3].p) == (None, "it failed", None)


def test_only_four_verdicts_are_given_and_a_row_at_the_edge_is_never_called_worse() -> None:
    clear = [0.03, 0.031, 0.029, 0.032, 0.028, 0.03]
    small = [0.001, -0.001, 0.0005, -0.0005, 0.001, -0.001]
    wide = [0.03, -0.02, 0.01, -0.03, 0.02, 0.0]
    lost = [-value for value in clear]
    one = {
        name: outcomes([pairs(name, values)])[0].verdict
        for name, values in zip("cswl", (clear, small, wide, lost), strict=True)
    }
    assert one == {"c": "better", "s": "equivalent", "w": "undecided", "l": "worse"}
    (held,) = outcomes([pairs("c", clear, other_at_edge=True)])
    assert (held.verdict, held.withheld) == ("undecided", True)
    assert outcomes([pairs("c", clear, subject_at_edge=True)])[0].verdict == "better"
    assert outcomes([pairs("l", lost, subject_at_edge=True)])[0].withheld
    assert outcomes([pairs("s", small, margin=None)])[0].verdict == "undecided"
    both = outcomes([pairs("c", clear), pairs("w", wide)])
    assert both[0].holm_p == pytest.approx(0.0625) and both[0].verdict == "undecided"  # 6 pairs are too few for two


def test_the_wider_of_both_intervals_decides() -> None:
    clear = [0.03, 0.031, 0.029, 0.032, 0.028, 0.03]
    examples = np.tile(np.array([1.0] * 52 + [-1.0] * 49), (6, 1))  # 3 more of 101 examples: far from certain
    (found,) = outcomes([pairs("c", clear, examples=examples)])
    assert found.holm_p == pytest.approx(1 / 32) and found.verdict == "undecided"
    assert found.interval == found.over_examples and found.interval is not None and found.interval.low < 0


@pytest.mark.parametrize("margin", [0.002, 0.01])
def test_equivalence_is_the_larger_of_two_one_sided_tests(margin: float) -> None:
    values = np.random.default_rng(1).normal(0.001, 0.004, 8)
    above = stats.ttest_1samp(values, -margin, alternative="greater").pvalue
    below = stats.ttest_1samp(values, margin, alternative="less").pvalue
    assert equivalence_p(values.tolist(), margin) == pytest.approx(max(above, below))


def test_the_smallest_difference_is_found_in_four_of_five_simulated_audits() -> None:
    values = np.random.default_rng(2).normal(size=8)
    size = smallest_by_signs(values, 5)
    assert size is not None
    draws = np.random.default_rng(3).normal(size, values.std(ddof=1), (600, 8))
    found = np.mean([brute_sign_flip(draw.tolist()) < 0.01 for draw in draws[:300]])
    assert 0.72 < found < 0.88
    assert smallest_by_signs(values[:6], 2) is None and smallest_by_signs(values[:6], 1) is not None


def test_pairs_needed_is_the_least_number_that_can_be_significant() -> None:
    for count in range(1, 30):
        assert pairs_needed(count) == next(n for n in range(2, 20) if count * 2.0 ** (1 - n) < 0.05)


def test_all_rows_try_the_same_points_and_grow_at_the_edge_of_any_row() -> None:
    points = first_points(RATES, 0)
    assert [point.rate for point in points.points] == list(RATES)
    inside, high = trials(0.1, 0.3, 0.2), trials(0.1, 0.2, 0.3)
    assert sides_to_grow(points, [inside, inside], 1.0) == []
    assert sides_to_grow(points, [inside, high], 1.0) == ["high"]
    assert sides_to_grow(points, [inside, high], -1.0) == ["low"]
    grown = points.grown(["low", "high"])
    assert sorted(point.rate for point in grown.points) == pytest.approx([1e-4, 3.33333e-4, *RATES, 3e-2, 1e-1])
    assert grown.side_of(Point(0.1)) == "high" and grown.side_of(Point(0.01)) is None
    assert first_points([1e-3], 0).side_of(Point(1e-3)) is None  # one rate: nothing is tuned


def test_random_points_are_one_fixed_list_in_the_range_and_grow_beyond_it() -> None:
    points = first_points(RATES, 12)
    assert points == first_points((0.5,), 12) and len({point.rate for point in points.points}) == 12
    assert all(1e-4 <= point.rate <= 1e-2 for point in points.points)
    assert {point.others["encoder.dropout"] for point in points.points} == {0.0, 0.1, 0.2}
    grown = points.grown(["high"])
    assert len(grown.points) == 15 and all(0.01 <= point.rate <= 0.05 for point in grown.points[12:])
    assert points.side_of(Point(7e-3)) == "high" and points.side_of(Point(5e-3)) is None


def test_a_tie_within_one_standard_error_goes_to_the_lower_rate_and_lost_trials_are_never_chosen() -> None:
    near = [Trial(Point(1e-3), (0.78, 0.82)), Trial(Point(3e-3), (0.79, 0.85)), Trial(Point(1e-2), (0.7, 0.7))]
    assert top_trial(near, 1.0) is near[1] and chosen_trial(near, 1.0) is near[0]
    assert chosen_trial([Trial(Point(1e-3), (0.9,), lost=1)], 1.0) is None
    assert chosen_trial([Trial(Point(1e-3), (0.1,), lost=1), near[2]], 1.0) is near[2]


def test_a_point_keeps_the_shape_of_the_schedule() -> None:
    optim = {"lr": 1e-3, "warmup_lr": 1e-5, "min_lr": 0.0}
    assert Point(1e-2).words(optim) == ["optim.lr=0.01", "optim.warmup_lr=0.0001"]
    assert "optim.warmup_steps=0" in Point(1e-2, {"optim.warmup_share": 0.1}).words(optim)


def test_expected_best_is_the_mean_over_all_draws() -> None:
    values = [0.3, 0.9, 0.5]
    for sign, best in ((1.0, max), (-1.0, min)):
        brute = [np.mean([best(draw) for draw in itertools.product(values, repeat=n)]) for n in (1, 2, 3)]
        assert expected_best(values, sign) == pytest.approx(brute)


def test_sensitivity_is_measured_at_the_same_points_for_all_rows() -> None:
    rows = {"csp": trials(0.2, 0.9, 0.88), "mha": trials(0.1, 0.5, 0.8), "identity": trials(0.3, 0.31, 0.2)}
    found = sensitivities(rows, 1.0, 0.1)
    assert found["csp"].shared_regret == pytest.approx(0.02)  # the last rate has the best sum
    assert found["identity"].shared_regret == pytest.approx(0.11) and found["mha"].shared_regret == 0
    assert found["identity"].base_regret == pytest.approx(0.11)
    assert lr_width(rows["csp"], 1.0, 0.1) == pytest.approx(np.log10(10 / 3))
    assert lr_width(rows["mha"], 1.0, 0.1) == 0
    errors = trials(2.0, 1.0, 1.01)
    assert lr_width(errors, -1.0, None) == pytest.approx(np.log10(10 / 3))


def test_equal_time_gives_fast_rows_more_steps_up_to_four_times() -> None:
    rows = {"mha": StepTime(0.2, 0.01), "csp": StepTime(0.1, 0.01), "identity": StepTime(0.01, 0.01)}
    times = Times(rows, 100, 20, 0.5, "a machine", None)
    assert times.steps_of("mha") == (100, False) and times.steps_of("csp") == (200, False)
    assert times.steps_of("identity") == (400, True)
    assert Times.from_json(times.as_json()) == times
    optim = {"schedule": "cosine", "warmup_steps": 50, "horizon": None, "val_every": None}
    words = time_words(optim, 200, 100, 20)
    assert {"optim.steps=200", "optim.warmup_steps=100", "optim.val_every=20", "optim.epochs=null"} <= set(words)
    with pytest.raises(ConfigError, match="milestones"):
        time_words(optim | {"schedule": "multistep"}, 200, 100, 20)
