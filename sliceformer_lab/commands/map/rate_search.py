"""How a cell chooses its learning rate: on validation, by one rule and one list of rates for all cells."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from statistics import fmean

from sliceformer_lab.commands.compare.search import Trial, contested_points

SOLVED = 0.99  # of validation; equals optim.stop_at of conf/optim/probe.yaml
EARLY_SHARE = 0.5  # of the steps: a rate that solves the probe within them with one seed needs no second
MARGIN = 0.02  # a score this near to a floor counts as that floor
MAX_BEHIND = 0.05  # a rate this near to the best one may be better with another seed
NUM_FINALISTS = 2  # learning rates at most that get a second tuning seed


def next_trials(
    trials: Sequence[Trial], rates: Sequence[float], chance: float, early: Collection[float] = ()
) -> list[tuple[float, int]]:
    """The learning rates to try next, each with the number of its tuning seed; [] if the choice can be made.

    `early` are those that solved the probe within half of their steps. The search ends with the first rate that solves
    the probe, either early or with the mean of two seeds, or with two rates that are at chance. Otherwise it climbs:
    after the first two rates only neighbours of the best one are tried. Then the best two get a second seed if they are
    close, and a third one if the two seeds disagree.
    """
    scores = {trial.point.rate: trial.scores[:2] for trial in trials}
    solving = {rate: values for rate, values in scores.items() if values[0] >= SOLVED}
    if solving_trials(trials, early):
        return []
    if unconfirmed := [rate for rate, values in solving.items() if len(values) == 1]:
        return [(unconfirmed[0], 1)]
    if len(scores) < min(2, len(rates)):
        return [(next(rate for rate in rates if rate not in scores), 0)]
    known = {rate: fmean(values) if rate in solving else values[0] for rate, values in scores.items()}
    best, *others = sorted(known, key=lambda rate: (-known[rate], rate))
    is_at_chance = known[best] <= chance + MARGIN
    if is_at_chance and not any(trial.lost for trial in trials):
        return []
    if untried := [rate for rate in _find_neighbours(best, rates) if rate not in scores]:
        return [(untried[0], 0)]
    if is_at_chance:
        return []
    finalists = [best, *(rate for rate in others if known[rate] >= known[best] - MAX_BEHIND)][:NUM_FINALISTS]
    has_seconds = any(len(values) > 1 for values in scores.values())
    if (len(finalists) > 1 or has_seconds) and (seconds := [(rate, 1) for rate in finalists if len(scores[rate]) == 1]):
        return seconds
    seen_twice = [replace(trial, scores=trial.scores[:2]) for trial in trials if len(trial.scores) > 1]
    decided = {trial.point.rate for trial in trials if len(trial.scores) > 2}
    contested = [point.rate for point in contested_points(seen_twice, 1.0, rates[0])]
    return [(rate, 2) for rate in contested if rate not in decided]


def solving_trials(trials: Sequence[Trial], early: Collection[float]) -> list[Trial]:
    """Those that solve the probe: early with the first seed, or else with the mean of two."""
    reached = [trial for trial in trials if trial.scores[0] >= SOLVED]
    return [
        trial
        for trial in reached
        if trial.point.rate in early or (len(trial.scores) > 1 and fmean(trial.scores[:2]) >= SOLVED)
    ]


def _find_neighbours(rate: float, rates: Sequence[float]) -> list[float]:
    """The next lower and the next higher one of some rates."""
    lower, higher = [one for one in rates if one < rate], [one for one in rates if one > rate]
    return [*([max(lower)] if lower else []), *([min(higher)] if higher else [])]
