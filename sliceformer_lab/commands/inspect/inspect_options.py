"""The options that all analyses share: the schema of conf/inspect.yaml."""

from dataclasses import dataclass
from typing import Literal

from sliceformer_lab.config.option_types import check_lists

Checkpoint = Literal["init", "best", "last"]


@dataclass(frozen=True, kw_only=True)
class InspectOptions:
    """The options of `conf/inspect.yaml`; those of one analysis are in its node. Raises ValueError."""

    runs: str | tuple[str, ...] = "outputs"
    checkpoint: Checkpoint | tuple[Checkpoint, ...] = ("init", "best")
    controls: bool = True  # add untrained controls to runs of a task that have none
    data_root: str | None = None  # None: where the runs read their data
    output: str | None = None  # None: analysis/<name> in the folder of the runs

    def __post_init__(self) -> None:
        lists = {"runs": self.runs, "checkpoint": self.checkpoint}
        check_lists({name: values for name, values in lists.items() if isinstance(values, tuple)})

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders in `runs` as a tuple."""
        return (self.runs,) if isinstance(self.runs, str) else self.runs

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """The checkpoints as a tuple, each once."""
        names = (self.checkpoint,) if isinstance(self.checkpoint, str) else self.checkpoint
        return tuple(dict.fromkeys(names))
