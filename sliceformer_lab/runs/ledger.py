"""The ledger of test evaluations: a line for each scored test set, beside the data. Lines are only appended."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import FileLock

from sliceformer_lab.runs.commit import git_commit
from sliceformer_lab.runs.score_options import LIMITS, score_options

LEDGER_FILE = "test_ledger.jsonl"  # in paths.data

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Evaluation:
    """One scoring of a test set."""

    task: str
    test_digest: str  # of the examples that were scored
    attention: str
    options: Mapping[str, Any]  # all that change what a run scores, by their path
    seed: int
    run: str  # folder of the run
    commit: str | None
    time: str


def changed_options(seen: Mapping[str, Any], config: Mapping[str, Any], free: Sequence[str]) -> list[str]:
    """The options that differ from those of an earlier evaluation, apart from `free` ones and what a run chooses."""
    now = score_options(config)
    changed = (key for key in dict.fromkeys([*now, *seen]) if seen.get(key) != now.get(key))
    return [key for key in changed if key not in free and not (now.get(key) is None and _is_chosen_by_run(key))]


def _is_chosen_by_run(key: str) -> bool:
    """Whether a run may give this option a value where its configuration has null."""
    return key == "optim.epochs" or (key.startswith("data.") and key not in LIMITS)


def read_ledger(folder: Path) -> list[Evaluation]:
    """The evaluations in the ledger of a data folder; damaged lines are left out."""
    file = folder / LEDGER_FILE
    if not file.is_file():
        return []
    found = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            found.append(Evaluation(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return found


def record_evaluation(config: Mapping[str, Any], run: Path, test_digest: str) -> None:
    """Append that a run has scored a test set. A folder that cannot be written gets a warning."""
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    names = config["names"]
    facts = (names["task"], test_digest, names["attention"], score_options(config), config["seed"], str(run))
    folder = Path(config["paths"]["data"]).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{LEDGER_FILE}.lock"), (folder / LEDGER_FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(Evaluation(*facts, git_commit(), now))) + "\n")
    except OSError as error:
        log.warning(f"WARNING: this evaluation of the test set is not in {folder / LEDGER_FILE} ({error})")
