"""Write studies/leaderboard.md from studies/results/submissions.jsonl, lines that `submit` wrote."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from sliceformer_lab.commands.submit.submission import digest_line
from sliceformer_lab.runs.plain_text import markdown_table

STUDIES = Path(__file__).resolve().parent
LINES, PAGE = STUDIES / "results" / "submissions.jsonl", STUDIES / "leaderboard.md"
INTRODUCTION = """\
<!-- written by `make docs` from studies/results/submissions.jsonl -->
# Leaderboard

What authors have submitted, one line of `submit` a row. A row keeps every rule of the contract. The rest is the mean
test accuracy on each probe (in brackets: lowest and highest seed; one that diverged counts as chance), and p of N^p,
fitted to the time of a layer at its two longest inputs. It is a profile, not a ranking: there is no mean over probes,
and the order of the rows is that of their names.

```bash
sliceformer-lab submit attention=csp       # writes outputs/submissions/csp/submission.jsonl
sliceformer-lab verify outputs/submissions/csp/submission.jsonl
```

To add a row, append your line to `studies/results/submissions.jsonl`, run `make docs`, and open a pull request with the
class and the YAML. `verify` repeats the line: rules, source and data must be equal, scores within .02, p within .3.
[What the probes ask](probes.md)
"""


def page() -> str:
    """The whole page."""
    return page_of(read())


def page_of(lines: Iterable[Mapping[str, Any]]) -> str:
    """The page of these lines: a table for each level of the probes."""
    parts = [INTRODUCTION]
    by_level: dict[str, list[Mapping[str, Any]]] = {}
    for line in sorted(lines, key=lambda line: line["options"]["subject"]):
        by_level.setdefault(line["options"]["level"], []).append(line)
    for level, rows in by_level.items():
        probes = list(dict.fromkeys(probe for row in rows for probe in row["probes"]))
        cells = [[_name(row), *(_score(row["probes"].get(one)) for one in probes), *_facts(row)] for row in rows]
        parts += [f"## Level {level}", markdown_table(["attention", *probes, "seeds", "p", "line"], *cells)]
    parts += [] if by_level else ["No line has been submitted yet."]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def read() -> list[dict[str, Any]]:
    """The committed lines. Raises ValueError for one that does not fit its digest."""
    lines = [json.loads(text) for text in LINES.read_text(encoding="utf-8").splitlines()]
    for line in lines:
        if digest_line(line) != line["digest"]:
            raise ValueError(f"the line of {line['options']['subject']} does not fit its digest")
    return lines


def _name(row: Mapping[str, Any]) -> str:
    return f"`{row['options']['subject']}`"


def _score(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return ""
    if cell["score"] is None:
        return str(cell["reason"] or "no score")
    scores = [cell["chance"] if score is None else score for score in cell["scores"]]  # None: it diverged
    diverged = cell["scores"].count(None)
    text = f"{_short(fmean(scores))} [{_short(min(scores))}, {_short(max(scores))}]"
    return f"{text}, {diverged} diverged" if diverged else text


def _facts(row: Mapping[str, Any]) -> list[str]:
    exponent = row["growth"]["exponent"]
    return [str(row["options"]["seeds"]), "" if exponent is None else f"{exponent:.2f}", f"`{row['digest'][:12]}`"]


def _short(value: float) -> str:
    return f"{value:.3f}".lstrip("0")
