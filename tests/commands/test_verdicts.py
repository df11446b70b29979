"""The verdicts of a comparison, its trials and its step budgets, against brute force and properties."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from support.runs import small_config

from sliceformer_lab.commands.compare import equal_time
from sliceformer_lab.commands.compare.equal_time import Times, _read_times, measure_times, time_words
from sliceformer_lab.commands.compare.search import (
    Point,
    Trial,
    chosen_trial,
    contested_points,
    first_points,
    lead_of,
    sides_to_grow,
)
from sliceformer_lab.commands.compare.sentences import phrase_of_smallest
from sliceformer_lab.commands.compare.verdicts import Outcome, Pairs, judge_rows
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.measures.statistics import estimate_crossed, estimate_over_seeds, holm
from sliceformer_lab.training.optim import OptimOptions
from sliceformer_lab.training.timing import StepTime

RATES = (1e-3, 3e-3, 1e-2)
CLEAR = [0.03, 0.031, 0.029, 0.032, 0.028, 0.03]
SMALL = [0.001, -0.001, 0.0005, -0.0005, 0.001, -0.001]
WIDE = [0.03, -0.02, 0.01, -0.03, 0.02, 0.0]


def pairs(values: Sequence[float], margin: float | None = 0.005, validation: Sequence[float] = ()) -> Pairs:
    on_validation = estimate_over_seeds(validation)
    return Pairs(dict(enumerate(values, 100)), estimate_over_seeds(values), margin, on_validation=on_validation)


def single(*values: Sequence[float]) -> list[Outcome]:
    """The outcomes of rows with one axis."""
    return judge_rows({f"row{place}": {"params": pairs(one)} for place, one in enumerate(values)})


def negative(values: Sequence[float]) -> list[float]:
    return [-value for value in values]


def test_p_values_are_student_s_stepped_down_over_the_compared_rows() -> None:
    generator = np.random.default_rng(0)
    rows = {name: generator.normal(shift, 0.01, 8) for name, shift in zip("abc", (0.03, 0.01, 0), strict=True)}
    family = {name: {"params": pairs(values.tolist())} for name, values in rows.items()}
    found = judge_rows({**family, "d": {"all": Pairs({}, None, obstacle="it did not learn")}})
    raw = [stats.ttest_1samp(values, 0).pvalue for values in rows.values()]
    assert [one.findings["params"].p for one in found[:3]] == pytest.approx(raw)
    assert [one.holm_p for one in found[:3]] == pytest.approx(holm(raw))  # three tests: the fourth row is not compared
    assert (found[3].verdict, found[3].reason, found[3].holm_p) == (None, "it did not learn", None)
    (one_seed,) = judge_rows({"e": {"params": pairs([0.1]), "time": Pairs({}, None, obstacle="no width fits")}})
    assert (one_seed.verdict, one_seed.reason) == (None, "no width fits")


@pytest.mark.parametrize("difference", [0.0, 0.001, 0.2])
def test_pairs_that_are_equal_or_all_differ_by_the_same_are_undecided_without_a_p(difference: float) -> None:
    found, other = single([difference] * 6, WIDE)
    finding = found.findings["params"]
    assert (found.verdict, found.holm_p, finding.alone) == ("undecided", None, "undecided")
    assert (finding.p, finding.p_equivalent, finding.smallest) == (None, None, None)
    name = "are equal" if difference == 0 else "differ by the same"
    assert phrase_of_smallest(finding, "test/accuracy") == f"all pairs {name}, so there is no spread to test with"
    assert (other.findings["params"].smallest or 0) > 0.02
    (mixed,) = judge_rows({"c": {"params": pairs([difference] * 6), "time": pairs(CLEAR)}})
    assert (mixed.verdict, mixed.holm_p, mixed.only_on) == ("undecided", None, ("time",))


def test_a_verdict_that_a_rate_beyond_the_edge_could_undo_is_withheld() -> None:
    assert [single(one)[0].verdict for one in (CLEAR, SMALL, WIDE, negative(CLEAR))] == [
        "better",
        "equivalent",
        "undecided",
        "worse",
    ]
    clear, lost = {"c": {"params": pairs(CLEAR)}}, {"l": {"params": pairs(negative(CLEAR))}}
    (held,) = judge_rows(clear, at_edge=["c"])
    assert (held.verdict, held.would_be) == ("withheld", "better")
    assert judge_rows(clear, subject_at_edge=True)[0].verdict == "better"
    assert judge_rows(lost, subject_at_edge=True)[0].would_be == "worse"
    equal = {"e": {"params": pairs(SMALL)}}
    for at_edge in (judge_rows(equal, at_edge=["e"]), judge_rows(equal, subject_at_edge=True)):
        assert (at_edge[0].verdict, at_edge[0].would_be) == ("withheld", "equivalent")
    assert judge_rows({"s": {"params": pairs(SMALL, margin=None)}})[0].verdict == "undecided"


def test_a_verdict_holds_on_every_axis_or_names_the_axis_that_it_holds_on() -> None:
    both, one, opposed = judge_rows(
        {
            "both": {"params": pairs(CLEAR), "time": pairs(CLEAR)},
            "one": {"params": pairs(WIDE), "time": pairs(CLEAR)},
            "opposed": {"params": pairs(CLEAR), "time": pairs(negative(CLEAR))},
        }
    )
    assert both.verdict == "better" and both.holm_p == pytest.approx(3 * stats.ttest_1samp(CLEAR, 0).pvalue)
    assert (one.verdict, one.only_on) == ("undecided", ("time",))
    assert opposed.verdict == "undecided" and opposed.holm_p == 1.0
    (at_edge,) = judge_rows({"one": {"params": pairs(WIDE), "time": pairs(CLEAR)}}, at_edge=["one"])
    assert (at_edge.verdict, at_edge.only_on) == ("undecided", ())
    cannot = {"params": Pairs({}, None, obstacle="no width fits"), "time": pairs(CLEAR)}
    (found,) = judge_rows({"cannot": cannot})
    assert (found.verdict, found.only_on, found.reason) == ("undecided", ("time",), "no width fits")


def test_a_difference_on_validation_that_excludes_the_one_on_the_test_set_is_named() -> None:
    far = [0.3, 0.31, 0.32]
    near, above, below, unknown, equal = (
        judge_rows({"c": {"params": pairs(WIDE, validation=other)}})[0]
        for other in (SMALL, far, negative(far), [], [0.3] * 3)
    )
    assert above.depends_on_split and below.depends_on_split
    assert not (near.depends_on_split or unknown.depends_on_split or equal.depends_on_split)


@pytest.mark.slow
def test_a_family_without_differences_is_called_wrongly_in_at_most_one_of_twenty_and_power_is_as_promised() -> None:
    draw, seeds, examples, rows, cases = np.random.default_rng(7).normal, 6, 100, 5, 600
    wrong, found, promised = 0, 0, []
    for _ in range(cases):
        tables = 0.02 * draw(size=(rows, seeds, 1)) + 0.3 * draw(size=(rows, 1, examples))
        tables = tables + draw(size=(rows, seeds, examples))
        estimates = [estimate_crossed(one) for one in tables]
        family = judge_rows({str(n): {"own": Pairs({0: 0.0}, e)} for n, e in enumerate(estimates)})
        wrong += any(one.verdict in ("better", "worse") for one in family)
        promised.append(family[0].findings["own"].smallest)
    shift = float(np.mean(promised))
    for _ in range(cases):
        table = shift + 0.02 * draw(size=(seeds, 1)) + 0.3 * draw(size=(1, examples)) + draw(size=(seeds, examples))
        found += estimate_crossed(table).p() < 0.05 / rows
    assert wrong / cases <= 0.05 + 0.015  # three standard errors of the simulation would be 0.027
    assert 0.74 <= found / cases <= 0.92


def test_all_rows_try_the_same_points_and_grow_at_the_edge_of_any_row() -> None:
    points = first_points(RATES, [2e-3, 2e-3, 1e-3], 0, "lr")
    assert [point.rate for point in points.points] == [*RATES, 2e-3]  # the recipe's own rates are candidates
    low, inside, high = (Trial(Point(rate), (0.3,)) for rate in RATES)
    assert sides_to_grow(points, [inside, inside, None]) == []
    assert sides_to_grow(points, [inside, high]) == ["high"] and sides_to_grow(points, [high, low]) == ["low", "high"]
    grown = points.extended_beyond(["low", "high"])
    assert sorted(point.rate for point in grown.points) == pytest.approx(
        [1e-4, 3.33333e-4, 1e-3, 2e-3, 3e-3, 1e-2, 3e-2, 1e-1]
    )
    assert grown.side_of(grown.points[-1]) == "high" and grown.side_of(Point(0.01)) is None
    assert first_points([1e-3], [1e-3], 0, "lr").side_of(Point(1e-3)) is None  # one rate: nothing is tuned


def test_random_points_are_one_fixed_list_around_the_recipe_s_own_rate_and_grow_beyond_it() -> None:
    own = [1e-3, 4e-3]
    points = first_points(RATES, own, 13, "recipe")
    assert points == first_points((0.5,), own, 13, "recipe") and len({point.rate for point in points.points}) == 13
    assert points.points[:2] == (Point(1e-3), Point(4e-3)) and 1e-4 <= points.low < 4e-4 and 1e-2 < points.high <= 4e-2
    assert {point.others["encoder.dropout"] for point in points.points[2:]} == {0.0, 0.1, 0.2, 0.3}
    assert all(not point.others for point in first_points(RATES, [1e-3], 12, "lr").points)
    grown = points.extended_beyond(["high"])
    assert len(grown.points) == 16 and all(points.high <= one.rate <= 5 * points.high for one in grown.points[13:])


def test_the_best_mean_wins_a_tie_goes_to_the_recipe_s_rate_and_lost_trials_are_never_chosen() -> None:
    near = [Trial(Point(1e-3), (0.78, 0.82)), Trial(Point(3e-3), (0.79, 0.85)), Trial(Point(1e-2), (0.85, 0.79))]
    assert chosen_trial(near, 1.0, 1e-2) is near[2] and chosen_trial(near, 1.0, 3e-3) is near[1]
    assert chosen_trial(near, 1.0, 5e-2) is near[1] and chosen_trial(near, -1.0, 5e-2) is near[0]
    assert chosen_trial([Trial(Point(1e-3), (0.9,), lost=1)], 1.0, 1e-3) is None
    assert chosen_trial([Trial(Point(1e-3), (0.1,), lost=1), near[2]], 1.0, 1e-3) is near[2]


def test_the_rounding_of_float32_decides_no_tie() -> None:
    own = Trial(Point(1e-3), (0.8999999761581421, 0.8999999761581421))  # float32 of .9
    other = Trial(Point(3e-3), (0.9, 0.9))
    assert chosen_trial([own, other], 1.0, 1e-3) is own and chosen_trial([own, other], 1.0, 3e-3) is other
    assert contested_points([own, Trial(Point(3e-3), (0.9, 0.8))], 1.0, 1e-3) == []


def test_rates_that_two_seeds_disagree_on_get_another_seed_and_that_decides() -> None:
    agreed = [Trial(Point(1e-3), (0.9, 0.8)), Trial(Point(3e-3), (0.9, 0.85))]  # a tie is no disagreement
    assert contested_points(agreed, 1.0, 1e-3) == []
    split = [Trial(Point(1e-3), (0.7, 0.88)), Trial(Point(3e-3), (0.9, 0.85)), Trial(Point(1e-2), (0.5, 0.5))]
    assert contested_points(split, 1.0, 1e-3) == [Point(3e-3), Point(1e-3)]
    decided = [Trial(Point(1e-3), (0.7, 0.88, 0.99)), Trial(Point(3e-3), (0.9, 0.85, 0.5)), split[2]]
    assert contested_points(decided, 1.0, 1e-3) == contested_points(split, 1.0, 1e-3)  # for a command given again
    others = Trial(Point(2e-2), (0.9, 0.9)), Trial(Point(3e-2), (0.95,), lost=1)  # fewer seeds; none that finished
    assert contested_points([*split, others[1]], 1.0, 1e-3) == contested_points(split, 1.0, 1e-3)
    assert chosen_trial([*decided, *others], 1.0, 1e-3) is decided[0]
    lead = lead_of(decided[0], [*decided, others[0], Trial(Point(0.1), (0.99,) * 3, lost=3)], 1.0)
    assert lead.mean == pytest.approx((-0.2 + 0.03 + 0.49) / 3) and lead.interval().low < 0
    errors = [replace(one, scores=tuple(-score for score in one.scores)) for one in split]
    assert contested_points(errors, -1.0, 1e-3) == contested_points(split, 1.0, 1e-3)
    assert lead_of(errors[1], errors, -1.0).mean == pytest.approx(lead_of(split[1], split, 1.0).mean)


def test_a_point_keeps_the_shape_of_the_schedule() -> None:
    optim = {"lr": 1e-3, "warmup_lr": 1e-5, "min_lr": 2e-6}
    assert Point(1e-2).words(optim) == ["optim.lr=0.01", "optim.warmup_lr=0.0001", "optim.min_lr=2e-05"]
    assert "optim.warmup_steps=0" in Point(1e-2, {"optim.warmup_share": 0.1}).words(optim)


@pytest.mark.parametrize("options", [{}, {"cycle": "official", "horizon": 600}, {"warmup_share": 0.3}])
@pytest.mark.parametrize("max_steps", [None, 400, 800, 900])
@pytest.mark.parametrize("times", [0.5, 2])
def test_equal_time_stretches_the_whole_schedule(options: dict[str, Any], max_steps: int | None, times: float) -> None:
    optim = {"epochs": None, "steps": 800, "interval": "step", "min_lr_share": 0.1, "max_steps": max_steps}
    optim |= {"schedule": "linear", "warmup_steps": 0 if "warmup_share" in options else 120} | options
    base = OptimOptions(**optim)
    num_steps = min(800, base.last_step or 800)
    found = Times({}, num_steps, num_steps < 800, 20, 0.5, "a machine", None)
    words = time_words(asdict(base), round(times * num_steps), found)
    changed = {key.removeprefix("optim."): value for key, _, value in (word.partition("=") for word in words)}
    row = replace(base, **{k: v if k == "interval" else None if v == "null" else int(v) for k, v in changed.items()})
    assert row.last_step == times * num_steps
    places = np.arange(0, num_steps, 10)
    ours = [base.rate_factor(800)(step) for step in places]
    np.testing.assert_allclose([row.rate_factor(row.steps)(round(times * step)) for step in places], ours, atol=0.06)


@pytest.mark.parametrize(("max_steps", "found"), [("null", (4, False)), ("4", (4, False)), ("3", (3, True))])
def test_the_measured_rows_know_whether_max_steps_shortens_the_run(
    max_steps: str, found: tuple[int, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(equal_time, "time_in_turns", lambda rows: dict.fromkeys(rows, StepTime(0.1, 0.01)))
    times = measure_times({"mha": small_config(f"optim.max_steps={max_steps}")})
    assert (times.steps, times.is_shortened) == found


def test_equal_time_gives_fast_rows_more_steps_up_to_four_times(tmp_path: Path) -> None:
    rows = {"mha": StepTime(0.2, 0.01), "csp": StepTime(0.1, 0.01), "identity": StepTime(0.01, 0.01)}
    times = Times(rows, 100, False, 20, 0.5, "a machine", None)
    assert times.steps_of("mha") == (100, False) and times.steps_of("csp") == (200, False)
    assert times.steps_of("identity") == (400, True)
    (tmp_path / "times.json").write_text(json.dumps(asdict(times)))
    assert _read_times(tmp_path / "times.json") == times and _read_times(tmp_path) is None
    optim = {"schedule": "cosine", "warmup_steps": 50, "horizon": None, "val_every": None, "max_steps": None}
    words = time_words(optim, 200, times)
    assert {"optim.steps=200", "optim.warmup_steps=100", "optim.val_every=20", "optim.epochs=null"} <= set(words)
    assert "optim.val_every=10" in time_words(optim, 10, times), "fewer steps than an epoch"
    assert "optim.val_every=7" in time_words(optim | {"val_every": 7}, 200, times)
    assert not any("warmup" in word for word in time_words(optim | {"warmup_steps": "untuned"}, 200, times))
    with pytest.raises(ConfigError, match="milestones"):
        time_words(optim | {"schedule": "multistep"}, 200, times)
