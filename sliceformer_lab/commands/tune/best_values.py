"""best.json: the chosen values of each row, which optim=tuned:FOLDER/ATTENTION reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sliceformer_lab.commands.compare.compare_rows import ComparedRow
from sliceformer_lab.commands.compare.trials_of_rows import Tuning
from sliceformer_lab.errors import LabError
from sliceformer_lab.runs.files import write_json
from sliceformer_lab.runs.sweep import override_key
from sliceformer_lab.runs.tuned import BEST


def write_best(tuning: Tuning, rows: Sequence[ComparedRow]) -> None:
    """Write the words of each row's chosen values. Raises LabError if every trial of every row diverged."""
    folder = Path(rows[0].options.folder).expanduser()
    entries = {}
    for row in rows:
        if (best := tuning.chosen[row.name]) is None:
            continue
        given = [word for word in rows[0].options.words if override_key(word).split(".")[0] == "optim"]
        found = best.point.words(row.config["optim"])
        entries[row.name] = {"value": best.mean, "words": [*given, *found], "found": found}
    if not entries:
        raise LabError(f"every trial in {folder} diverged; try lower learning rates, as rates=[...] trials=0")
    write_json(folder / BEST, {"attention": entries})
