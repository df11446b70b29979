"""What the presets of the reviewers' questions found: the tables of studies/reviews.md.

usage: python studies/reviews_page.py                          write the tables (`make docs`)
       python studies/reviews_page.py collect SWEEP_FOLDER...  add finished runs to results/reviews.json first
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from command_line import collect_or_write
from marked_sections import with_section
from results import RESULTS, finished_runs

from sliceformer_lab.measures.statistics import student_half_width
from sliceformer_lab.runs.files import write_text
from sliceformer_lab.runs.plain_text import markdown_table

FILE, PAGE = RESULTS / "reviews.json", RESULTS.parent / "reviews.md"
CONTRASTS = {  # rows whose difference is shown, paired by seed
    "q02_length": (),
    "q02_recall": (),
    "q07_depth": (("csp", "identity"), ("csp", "random_permutation"), ("csp", "mha")),
    "q14_steps": (),
    "q15_windows": (("2", "1"), ("4", "1"), ("8", "1"), ("whole", "1")),
}
Score = Mapping[str, Any]  # accuracy of one seed in a row and a column of a question's table


def collect(sweeps: Iterable[Path]) -> None:
    """Add the runs of presets to results/reviews.json. The same row, column and seed are replaced.

    Raises DataError as `finished_runs`.
    """
    scores = {_key(score): score for score in read()}
    for _, summary in finished_runs(sweeps):
        question = str(summary["study"]).removeprefix("csp_reviews/")
        for row, column, accuracy in _places(question, summary):
            facts = {"question": question, "row": row, "column": column, "seed": summary["seed"]}
            score = facts | {"accuracy": round(accuracy, 5), "git_commit": summary["git_commit"]}
            scores[_key(score)] = score
    write_text(FILE, "[\n" + ",\n".join(json.dumps(scores[key]) for key in sorted(scores)) + "\n]\n")


def read() -> list[Score]:
    """The committed scores."""
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else []


def _places(question: str, summary: Mapping[str, Any]) -> list[tuple[str, str, float]]:
    """Row, column and accuracy of a run's scores in the table of its question."""
    attention, accuracy = summary["options"]["attention"], summary["metrics"]["test/accuracy"]
    match question:
        case "q02_length":
            return [(summary["attention"], length, a) for length, a in summary["accuracy_at_length"].items()]
        case "q02_recall":
            row = f"{summary['attention']}, {summary['options']['encoder']['position']}"
            return [(row, length, a) for length, a in summary["accuracy_at_length"].items()]
        case "q07_depth":
            return [(summary["attention"], f"{summary['options']['encoder']['depth']} layers", accuracy)]
        case "q14_steps":
            return [(attention["shift"], "shift alone" if attention["group_size"] == 1 else "sorted pairs", accuracy)]
        case "q15_windows":
            return [(str(attention["group_size"] or "whole"), "test accuracy", accuracy)]
    raise ValueError(f"{summary['study']} has no table here")


def table(question: str) -> str:
    """Test accuracy in percent by row and column, with Student's 95 % interval over seeds; paired differences below."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for score in read():
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
        lines.append([f"`{row}` less `{other}`", *(_interval(values, "+") for values in differences)])
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
    half = student_half_width(np.std(values, ddof=1), len(values))
    return f"{np.mean(values):{sign}.1f} ± {half:.1f}"


def _number(name: str) -> tuple[int, str]:
    """A sort key: names that begin with a number by it, others behind them."""
    digits = name.split()[0]
    return (int(digits), "") if digits.isdigit() else (sys.maxsize, name)


def _key(score: Score) -> tuple[str, str, str, int]:
    return score["question"], score["row"], score["column"], score["seed"]


if __name__ == "__main__":
    collect_or_write(__doc__, collect, lambda: write_text(PAGE, page()))
