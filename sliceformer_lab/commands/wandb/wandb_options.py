"""The options of `wandb`: the schema of conf/wandb.yaml."""

from dataclasses import dataclass
from typing import Literal

from sliceformer_lab.config.option_types import Name


@dataclass(frozen=True, kw_only=True)
class WandbOptions:
    """The options of `conf/wandb.yaml`."""

    action: Literal["workspace", "report"] = "workspace"
    folder: str | None = None  # of a sweep, an audit, a search or a map; None: every run of the project
    entity: Name | None = None  # None: that of the folder's runs, or the default entity of the key
    project: Name | None = None  # None: that of the folder's runs, or sliceformer_lab
    name: Name | None = None  # None: the folder's name, or that of the project
    metric: Name | None = None  # from the summaries; None: that of the folder's runs, or test/accuracy
