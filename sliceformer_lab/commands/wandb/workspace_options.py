"""The options of `wandb`: the schema of conf/wandb.yaml."""

from dataclasses import dataclass

from sliceformer_lab.config.option_types import Name


@dataclass(frozen=True, kw_only=True)
class WorkspaceOptions:
    """The options of `conf/wandb.yaml`."""

    entity: Name | None = None  # None: the default entity of the key
    project: Name = "sliceformer_lab"
    name: Name = "sliceformer_lab"
    group: Name | None = None  # None: all runs
    metric: Name = "test/accuracy"  # from the summaries
    curve: Name = "val/accuracy"  # from the history
