"""The options of `submit`: the schema of conf/submit.yaml, and what `verify` reads from a line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sliceformer_lab.commands.map.map_options import PROBES, ProbeName
from sliceformer_lab.config.option_types import Count, Name, check_lists


@dataclass(frozen=True, kw_only=True)
class SubmitOptions:
    """The options of `conf/submit.yaml`. Raises ValueError for lists that are empty or name something twice."""

    subject: Name
    probes: tuple[ProbeName, ...] = PROBES
    level: Literal["easy", "standard", "hard"] = "standard"
    seeds: Count = 3
    sizes: tuple[Count, ...] = (256, 1024, 4096)
    folder: str

    def __post_init__(self) -> None:
        check_lists({"probe": self.probes, "sizes": self.sizes})
        if len(self.sizes) < 2:
            raise ValueError(f"sizes={list(self.sizes)}: growth needs two numbers of tokens")
