"""What the user sets of a workspace: the schema of conf/wandb.yaml."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

Name = Annotated[str, Field(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class WorkspaceOptions:
    """The options of `conf/wandb.yaml`."""

    entity: Name | None = None  # None: the key's own
    project: Name = "sliceformer_lab"
    name: Name = "sliceformer_lab"
    group: Name | None = None  # None: all runs
    metric: Name = "test/accuracy"  # of the summaries
    curve: Name = "val/accuracy"  # of the history
