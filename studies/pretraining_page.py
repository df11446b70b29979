"""Does pretraining help operators with queries and keys only? The tables of studies/pretraining.md.

They follow from results/pretraining.jsonl, one line a run.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from marked_sections import with_section
from results import read
from scipy import stats

from sliceformer_lab.measures.statistics import MIN_INTERVAL_RUNS, sign_flip_test, student_half_width

STUDY = "pretraining"
MIN_RESAMPLED_SEEDS = 6  # seeds
PAGE = Path(__file__).resolve().parent / "pretraining.md"
ARMS = ("scratch", "equal", "pretrained")  # as many steps as the training, as both stages, and both stages
CONTROLS = {"shuffled": "on shuffled tokens", "new attentions": "attentions drawn again"}  # other arms with pretraining
ROWS = {
    **{"mha": "queries and keys", "linear": "queries and keys", "samsa": "queries and keys"},
    **{"csp": "shift, then sorted pairs", "csp_shift_only": "shift", "sliceformer": "complete sort"},
    **{"depthwise_conv": "convolution", "random_permutation": "control", "identity": "control: mixes nothing"},
}
R2, ACCURACY = "pretrain/val/r2_beyond_position", "pretrain/val/accuracy"
NAMES = {R2: "masked R2 beyond the position", ACCURACY: "masked accuracy"}


@dataclass(frozen=True)
class Setting:
    """A task with a number of steps with labels; a pretrained model has three times as many before them."""

    task: str
    steps: int
    found: str  # the metric of the pretraining


SETTINGS = {
    "digits": Setting("digits", 120, R2),
    "digits, longer": Setting("digits", 480, R2),
    "lra_listops": Setting("lra_listops", 150, ACCURACY),
}
CLOUDS = Setting("modelnet40", 42, "pretrain/val/chamfer")
DECLARED = ("mha", "csp")
Result = Mapping[str, Any]


def scores(setting: Setting) -> dict[tuple[str, str], dict[int, Result]]:
    """The runs of a setting by attention and arm, and by seed."""
    arms = {("scratch", setting.steps): "scratch", ("scratch", 4 * setting.steps): "equal"}
    arms |= {(arm, 4 * setting.steps): arm for arm in ("pretrained", *CONTROLS)}
    found: dict[tuple[str, str], dict[int, Result]] = {}
    for run in read(STUDY):
        if run["task"] == setting.task and (arm := arms.get((run["arm"], run["steps"]))):
            found.setdefault((run["attention"], arm), {})[run["seed"]] = run
    return found


def accuracies(runs: Mapping[int, Result], seeds: Iterable[int], metric: str = "test/accuracy") -> np.ndarray:
    """A metric of some seeds, in percent."""
    return 100 * np.array([runs[seed]["metrics"][metric] for seed in seeds])


def gains(setting: Setting, against: str = "equal") -> dict[str, np.ndarray]:
    """By attention: pretrained minus trained from scratch, paired by seed, in points.

    `against` is the arm: as many steps in all (equal), or as many with labels (scratch).
    """
    found, gain = scores(setting), {}
    for name in ROWS:
        first, other = (found.get((name, arm), {}) for arm in ("pretrained", against))
        if seeds := sorted(first.keys() & other.keys()):
            gain[name] = accuracies(first, seeds) - accuracies(other, seeds)
    return gain


def table(setting: Setting) -> str:
    """A row for each attention: accuracy of the three arms on the seeds that all have, the gain with its 95 % interval,
    and what pretraining found."""
    found, gain = scores(setting), gains(setting)
    lines = [
        "| attention | | from scratch | from scratch, equal steps | pretrained | gain, points | pairs "
        f"| {NAMES[setting.found]} |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in gain:
        arms = [found.get((name, arm), {}) for arm in ARMS]
        seeds = sorted(set.intersection(*(set(arm) for arm in arms)))
        cells = [f"{accuracies(arm, seeds).mean():.1f}" for arm in arms]
        masked = accuracies(arms[2], seeds, setting.found).mean() / 100
        shown = [f"`{name}`", ROWS[name], *cells, with_interval(gain[name]), str(len(gain[name])), f"{masked:.3f}"]
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines)


def controls(setting: Setting) -> str:
    """A row for each attention with a control: accuracies, and pretrained minus control with 95 % intervals."""
    found = scores(setting)
    lines = [
        "| attention | pretrained | "
        + " | ".join(f"{text} | pretrained minus this" for text in CONTROLS.values())
        + " |"
    ]
    lines.append(f"|{'---|' * (2 + 2 * len(CONTROLS))}")
    for name in ROWS:
        own, cells = found.get((name, "pretrained"), {}), []
        for control in CONTROLS:
            other = found.get((name, control), {})
            seeds = sorted(own.keys() & other.keys())
            cells += [f"{accuracies(other, seeds).mean():.1f}" if seeds else "–"]
            cells += [with_interval(accuracies(own, seeds) - accuracies(other, seeds)) if seeds else "–"]
        if set(cells) != {"–"}:
            lines.append(f"| {' | '.join((f'`{name}`', f'{accuracies(own, own).mean():.1f}', *cells))} |")
    return "\n".join(lines)


def clouds() -> str:
    """A row for each attention: the Chamfer distance of hidden balls, lower is better, and its range over seeds."""
    found = scores(CLOUDS)
    lines = ["| attention | Chamfer distance, 1e-4 | seeds |", "|---|---|---|"]
    for name in ROWS:
        if runs := found.get((name, "pretrained")):
            values = 100 * accuracies(runs, runs, CLOUDS.found)
            lines.append(f"| `{name}` | {values.mean():.1f} ({values.min():.1f} to {values.max():.1f}) | {len(runs)} |")
    centre = [run["metrics"]["pretrain/val/chamfer_of_centre"] for run in found["identity", "pretrained"].values()]
    lines.append(f"| the centre alone | {1e4 * np.mean(centre):.1f} | {len(centre)} |")
    return "\n".join(lines)


def bootstrap_interval(values: Sequence[float] | np.ndarray) -> tuple[float, float] | None:
    """The 95 % interval of the mean over seeds by which this study was judged; None for fewer than three.

    Six or more values are resampled, with percentiles widened for few values (Hesterberg 2015, American Statistician
    69(4), section 4.4); fewer get Student's t.
    """
    results = np.asarray(values, dtype=np.float64)
    count = len(results)
    if count < MIN_INTERVAL_RUNS:
        return None
    if count < MIN_RESAMPLED_SEEDS:
        half = float(student_half_width(results.std(ddof=1), count))
        return float(results.mean() - half), float(results.mean() + half)
    tail = float(stats.norm.cdf(-((count / (count - 1)) ** 0.5) * stats.t.ppf(0.975, count - 1)))
    means = results[np.random.default_rng(0).integers(count, size=(10_000, count))].mean(axis=1)
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def with_interval(values: Sequence[float] | np.ndarray) -> str:
    """A mean and its 95 % interval, signed."""
    interval = bootstrap_interval(values)
    mean = f"{np.mean(values):+.1f}"
    return mean if interval is None else f"{mean} ({interval[0]:+.1f} to {interval[1]:+.1f})"


def comparison(setting: Setting) -> str:
    """The declared comparison in one paragraph; empty where its rows are missing."""
    gain = gains(setting)
    if not set(DECLARED) <= gain.keys():
        return ""
    first, other = (gain[name] for name in DECLARED)
    pairs = min(len(first), len(other))
    difference = first[:pairs] - other[:pairs]
    half = stats.t.ppf(0.95, pairs - 1) * difference.std(ddof=1) / pairs**0.5
    low, high = difference.mean() - half, difference.mean() + half
    shorter = ", ".join(f"`{name}` {values.mean():+.1f}" for name, values in gains(setting, "scratch").items())
    text = (
        f"Gain of `{DECLARED[0]}` minus gain of `{DECLARED[1]}`: {difference.mean():+.2f} points, 90 % interval "
        f"{low:+.2f} to {high:+.2f} (Student's t), exact sign-flip p = {sign_flip_test(difference):.3f}, "
        f"{pairs} pairs: {', '.join(f'{value:+.1f}' for value in difference)}. Against the shorter training, which has "
        f"as many steps with labels, pretraining adds {shorter} points."
    )
    return textwrap.fill(text, width=120)


def page() -> str:
    """The page with tables and comparisons between their markers."""
    text = PAGE.read_text(encoding="utf-8")
    for name, setting in SETTINGS.items():
        text = with_section(text, name, f"{table(setting)}\n\n{comparison(setting)}")
    return with_section(with_section(text, "controls", controls(SETTINGS["digits"])), "clouds", clouds())
