"""An audit on a user's table: the table of studies/audit.md, from the results that `audit` wrote."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from statistics import fmean
from typing import Any

from marked_sections import with_section
from results import RESULTS

from sliceformer_lab.measures.statistics import Estimate, estimate_over_seeds, holm

FILE = RESULTS / "audit_agnews_csp.json"
PAGE = RESULTS.parent / "audit.md"
ROWS = {
    "csp": "shifts every channel, sorts pairs",
    "mha": "softmax attention",
    "depthwise_conv": "rival: a convolution over three tokens",
    "random_permutation": "control: one fixed random permutation of each channel",
    "random_mixing": "control: one fixed random matrix",
    "mean": "control: the mean of all tokens",
    "pooling": "control: the mean of three tokens minus the token itself",
    "identity": "control: mixes nothing",
}
NUM_TEXTS = 800  # of the test set
NORMAL_95 = 1.96  # half-widths of the stored intervals over texts, in standard errors
Found = Mapping[str, Any]


def read() -> Found:
    """The committed results."""
    found: Found = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def table(found: Found) -> str:
    """Test accuracy of each row at equal parameters and at equal time, and what the audited row has more."""
    less = "`csp` minus this row"
    lines = [
        f"| attention | | equal parameters, % | {less} | equal time, % | {less} | time of a step |",
        "|---|---|---|---|---|---|---|",
    ]
    steps = {name: times["median"] for name, times in found["times"]["rows"].items()}
    separated = separated_rows(found)
    for name, description in ROWS.items():
        cells = [cell for axis in ("params", "time") for cell in _cells(found["axes"][axis], name, name in separated)]
        lines.append(f"| `{name}` | {description} | {' | '.join(cells)} | {steps[name] / steps['mha']:.2f} |")
    best = max(found["references"], key=lambda one: one["metrics"]["test/accuracy"])
    score = f"{100 * best['metrics']['test/accuracy']:.2f}"
    return "\n".join([*lines, f"| {best['name']} | without a network | {score} | | {score} | | |"])


def page() -> str:
    """The page with the table between its markers."""
    return with_section(PAGE.read_text(encoding="utf-8"), "audit", table(read()))


def estimates(axis: Found) -> dict[str, Estimate]:
    """What the audited row has more than each other row, over seeds and test texts.

    The scores of single texts were not kept. The two variances are added, which is never less than the crossed one.
    """
    found = {}
    for outcome in axis["outcomes"]:
        over_seeds = estimate_over_seeds(list(outcome["differences"].values()))
        if over_seeds is None:
            raise ValueError(f"{outcome['against']} has fewer than two pairs of seeds")
        texts = outcome["over_examples"]
        of_texts = ((texts["high"] - texts["low"]) / 2 / NORMAL_95) ** 2
        variance = over_seeds.variance + of_texts
        df = variance**2 / (over_seeds.variance**2 / over_seeds.df + of_texts**2 / (NUM_TEXTS - 1))
        found[outcome["against"]] = Estimate(over_seeds.mean, variance, df, "seeds and examples")
    return found


def separated_rows(found: Found) -> list[str]:
    """The rows that differ from the audited one on every axis after Holm's correction, with one sign."""
    signs: dict[str, set[float]] = {}
    for axis in found["axes"].values():
        known = estimates(axis)
        for name, p in zip(known, holm([one.p() for one in known.values()]), strict=True):
            signs.setdefault(name, set()).add(math.copysign(1, known[name].mean) if p is not None and p < 0.05 else 0.0)
    return [name for name, seen in signs.items() if seen in ({1.0}, {-1.0})]


def _cells(axis: Found, name: str, bold: bool) -> tuple[str, str]:
    """The mean over seeds and, but for `csp` itself, the difference; bold where the verdict separates them."""
    mean = f"{100 * fmean(axis['scores'][name].values()):.2f}"
    estimate = estimates(axis).get(name)
    if estimate is None:
        return mean, ""
    half = estimate.interval().half_width
    difference = f"{100 * estimate.mean:+.2f} ± {100 * half:.2f}"
    return mean, f"**{difference}**" if bold else difference
