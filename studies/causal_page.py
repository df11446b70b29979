"""Write the results of studies/causal.md from studies/results/text_lm.jsonl and text_lm_ngrams.json.

Add finished runs first: python studies/results.py collect text_lm RUN_FOLDER...
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from marked_sections import with_section
from results import RESULTS, interval, read

PAGE = Path(__file__).resolve().parent / "causal.md"
ROWS = {
    "mha": "softmax attention",
    "csp_causal": "shift, then sorted pairs",
    "csp_causal_sliding": "shift, then one rank of the last two slots",
    "csp_causal_shift_only": "shift alone",
    "random_permutation": "control: what is causal of a random permutation",
    "identity": "control: mixes nothing",
}
METRIC = "test/bits_per_token"


def table() -> str:
    """A row for each attention, and one for each n-gram, with bits per character of the test windows."""
    lines = ["| model | | bits per character | runs | parameters | multiply-adds |", "|---|---|---|---|---|---|"]
    results = read("text_lm")
    for name, description in ROWS.items():
        if runs := [result for result in results if result["attention"] == name]:
            bits = interval(np.array([run["metrics"][METRIC] for run in runs]))
            cost = runs[0]["cost_per_sample"]["multiply_adds"] / 1e6
            parameters = f"{runs[0]['parameters']:,}"
            lines.append(f"| `{name}` | {description} | {bits} | {len(runs)} | {parameters} | {cost:.1f} M |")
    for row in json.loads((RESULTS / "text_lm_ngrams.json").read_text(encoding="utf-8")):
        lines.append(f"| {row['name']} | counts, no network | {row['metrics'][METRIC]:.4g} | – | – | – |")
    return "\n".join(lines)


def page() -> str:
    """The page with the table between its markers."""
    return with_section(PAGE.read_text(encoding="utf-8"), "results", table())
