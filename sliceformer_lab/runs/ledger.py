"""The ledger of test evaluations: a line for each scored test set, beside the data. Lines are only appended."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock

LEDGER = "test_ledger.jsonl"  # in paths.data


@dataclass(frozen=True)
class Evaluation:
    """One scoring of a test set."""

    task: str
    fingerprint: str  # of the data
    row: str  # its attention
    options: str  # digest of its options, without seed and tuned values
    seed: int
    run: str  # digest of all words of the run, which identifies the evaluation
    commit: str | None
    time: str
    purpose: str = "report"


def read_ledger(folder: Path) -> list[Evaluation]:
    """The evaluations in the ledger of a data folder; damaged lines are left out."""
    file = folder / LEDGER
    if not file.is_file():
        return []
    found = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            found.append(Evaluation(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return found


def append_ledger(folder: Path, evaluations: Iterable[Evaluation]) -> None:
    """Append the evaluations that the ledger does not have yet."""
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f".{LEDGER}.lock"):
        known = {(one.fingerprint, one.run) for one in read_ledger(folder)}
        new = [one for one in evaluations if (one.fingerprint, one.run) not in known]
        with (folder / LEDGER).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(one)) + "\n" for one in new)
