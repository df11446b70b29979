"""The folder of a finished pretraining: its record and its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from sliceformer_lab.runs.files import known_json

FOLDER, RECORD = "pretrain", "pretrain.json"  # in a run folder, and in that folder


@dataclass(frozen=True)
class PretrainingFolder:
    """A folder, such as RUN/pretrain, in which a pretraining has finished."""

    folder: Path
    facts: Mapping[str, Any]  # its record

    @classmethod
    def find(cls, folder: Path) -> Self | None:
        """The pretraining in `folder`, or in the run folder of that name; None if none has finished there."""
        for place in (folder, folder / FOLDER):
            facts = known_json(place / RECORD)
            if isinstance(facts.get("model"), dict) and "checkpoint" in facts:
                return cls(place, facts)
        return None

    @property
    def weights(self) -> Path:
        """The checkpoint that runs start from."""
        return self.folder / "checkpoints" / str(self.facts["checkpoint"])
