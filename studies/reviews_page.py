"""What the presets of the reviewers' questions found: the tables of studies/reviews.md.

They follow from results/reviews.json: the accuracy of one seed in a row and a column of a question's table.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import numpy as np
from marked_sections import with_section
from results import RESULTS

from sliceformer_lab.measures.statistics import student_half_width
from sliceformer_lab.runs.plain_text import markdown_table

FILE, PAGE = RESULTS / "reviews.json", RESULTS.parent / "reviews.md"
CONTRASTS = {  # rows whose difference is shown, paired by seed
    "q02_length": (),
    "q02_recall": (),
    "q07_depth": (("csp", "identity"), ("csp", "random_permutation"), ("csp", "mha")),
    "q14_steps": (),
    "q15_windows": (("2", "1"), ("4", "1"), ("8", "1"), ("whole", "1")),
}


def table(question: str) -> str:
    """Test accuracy in percent by row and column, with Student's 95 % interval over seeds; paired differences below."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for score in json.loads(FILE.read_text(encoding="utf-8")):
        if score["question"] == question:
            found.setdefault(score["row"], {}).setdefault(score["column"], {})[score["seed"]] = 100 * score["accuracy"]
    columns = sorted({column for row in found.values() for column in row}, key=_number)
    lines = [
        [f"`{row}`", *(_interval(list(found[row].get(column, {}).values()), "") for column in columns)]
        for row in sorted(found, key=_number)
    ]
    for row, other in CONTRASTS[question]:
        pairs = [(found.get(row, {}).get(column, {}), found.get(other, {}).get(column, {})) for column in columns]
        differences = [[ours[seed] - theirs[seed] for seed in ours.keys() & theirs.keys()] for ours, theirs in pairs]
        lines.append([f"`{row}` minus `{other}`", *(_interval(values, "+") for values in differences)])
    return markdown_table(["", *columns], *lines)


def page() -> str:
    """The page with all tables between their markers."""
    text = PAGE.read_text(encoding="utf-8")
    for question in CONTRASTS:
        text = with_section(text, question, table(question))
    return text


def _interval(values: Sequence[float], sign: str) -> str:
    """The mean of values and half of Student's 95 % interval; `sign` + shows the sign of the mean."""
    if len(values) < 2:
        return f"{values[0]:{sign}.1f}" if values else "–"
    half = student_half_width(float(np.std(values, ddof=1)), len(values))
    return f"{np.mean(values):{sign}.1f} ± {half:.1f}"


def _number(name: str) -> tuple[int, str]:
    """A sort key: names that begin with a number by it, others behind them."""
    digits = name.split()[0]
    return (int(digits), "") if digits.isdigit() else (sys.maxsize, name)
