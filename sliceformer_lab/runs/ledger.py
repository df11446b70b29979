"""The ledger of test evaluations: a line for each scored test set, beside the data. Lines are only appended."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import FileLock

from sliceformer_lab.runs.commit import git_commit

LEDGER = "test_ledger.jsonl"  # in paths.data
SOLVED = "inner_mult"  # an option that a budget sets, so that its value is no choice


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Evaluation:
    """One scoring of a test set."""

    task: str
    fingerprint: str  # of the data
    attention: str
    options: str  # digest of its own options
    seed: int
    run: str  # folder of the run
    commit: str | None
    time: str


def attention_digest(config: Mapping[str, Any]) -> str:
    """A hash of the options of a configuration's attention that a user chooses."""
    chosen = {key: value for key, value in config["attention"].items() if key != SOLVED}
    return hashlib.sha256(json.dumps(chosen, sort_keys=True, default=str).encode()).hexdigest()[:12]


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


def record_evaluation(config: Mapping[str, Any], run: Path, fingerprint: str) -> None:
    """Append that a run has scored the test set of its data. A folder that cannot be written gets a warning."""
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    names = config["names"]
    facts = (names["task"], fingerprint, names["attention"], attention_digest(config), config["seed"], str(run))
    folder = Path(config["paths"]["data"]).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{LEDGER}.lock"), (folder / LEDGER).open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(Evaluation(*facts, git_commit(), now))) + "\n")
    except OSError as error:
        log.warning(f"WARNING: this evaluation of the test set is not in {folder / LEDGER} ({error})")
