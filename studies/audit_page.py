"""An audit on a user's table: the table of README.md and docs/audit.md, from the results that `audit` wrote.

usage: python studies/audit_page.py    write the table (`make docs`)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from statistics import fmean
from typing import Any

from marked_sections import with_section
from results import README, RESULTS

from sliceformer_lab.runs.files import write_text

FILE = RESULTS / "audit_agnews_csp.json"
PAGES = (README, README.parent / "docs" / "audit.md")
ROWS = {
    "csp": "shifts every channel, sorts pairs",
    "mha": "softmax attention",
    "depthwise_conv": "rival: a convolution over three tokens",
    "random_permutation": "control: one fixed random permutation of each channel",
    "random_mixing": "control: one fixed random matrix",
    "mean": "control: the mean of all tokens",
    "pooling": "control: the mean of three tokens less the token itself",
    "identity": "control: mixes nothing",
}
Found = Mapping[str, Any]


def read() -> Found:
    """The committed results."""
    found: Found = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def table(found: Found) -> str:
    """Test accuracy of each row at equal parameters and at equal time, and what the audited row has more."""
    less = "`csp` less this row"
    lines = [
        f"| attention | | equal parameters, % | {less} | equal time, % | {less} | time of a step |",
        "|---|---|---|---|---|---|---|",
    ]
    steps = {name: times["median"] for name, times in found["times"]["rows"].items()}
    for name, description in ROWS.items():
        cells = [cell for axis in ("params", "time") for cell in _cells(found["axes"][axis], name)]
        lines.append(f"| `{name}` | {description} | {' | '.join(cells)} | {steps[name] / steps['mha']:.2f} |")
    best = max(found["references"], key=lambda one: one["metrics"]["test/accuracy"])
    score = f"{100 * best['metrics']['test/accuracy']:.2f}"
    return "\n".join([*lines, f"| {best['name']} | without a network | {score} | | {score} | | |"])


def _cells(axis: Found, name: str) -> tuple[str, str]:
    """The mean over seeds and, but for `csp` itself, the paired difference; bold where the verdict separates them."""
    mean = f"{100 * fmean(axis['scores'][name].values()):.2f}"
    outcome = next((one for one in axis["outcomes"] if one["against"] == name), None)
    if outcome is None:
        return mean, ""
    interval, center = outcome["interval"], outcome["mean"]
    half = max(interval["high"] - center, center - interval["low"])
    difference = f"{100 * center:+.2f} ± {100 * half:.2f}"
    return mean, f"**{difference}**" if outcome["verdict"] in ("better", "worse") else difference


if __name__ == "__main__":
    for page in PAGES:
        write_text(page, with_section(page.read_text(encoding="utf-8"), "audit", table(read())))
