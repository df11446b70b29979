"""What the user sets of any analysis: the schema of conf/inspect.yaml."""

from dataclasses import dataclass
from typing import Literal

Checkpoint = Literal["init", "best", "last"]


@dataclass(frozen=True, kw_only=True)
class InspectOptions:
    """The options of `conf/inspect.yaml`; those of one analysis are in its node."""

    runs: str | tuple[str, ...] | None = "outputs"  # None: the analysis needs none
    checkpoint: Checkpoint | tuple[Checkpoint, ...] = ("init", "best")
    controls: bool = True  # untrained ones beside the runs of a task that lack them
    data_root: str | None = None  # None: where the runs read them
    output: str | None = None  # None: analysis/<name> in the folder of the runs

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders in `runs`."""
        return (self.runs,) if isinstance(self.runs, str) else self.runs or ()

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """The weights to look at, each once."""
        asked = (self.checkpoint,) if isinstance(self.checkpoint, str) else self.checkpoint
        return tuple(dict.fromkeys(asked))
