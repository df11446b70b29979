"""The options of `tune`: the schema of conf/tune.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sliceformer_lab.config.option_types import Count, Name, Seed, check_lists

Search = Literal["lr", "lr_wd", "recipe"]


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """The options of `conf/tune.yaml`."""

    attentions: tuple[Name, ...] = ("mha", "csp", "sliceformer", "identity")
    trials: Count = 20
    search: Search = "lr"
    sampler: Literal["random", "tpe"] = "random"
    round: Count = 5
    prune: Literal["none", "median"] = "none"
    seeds: Count = 6
    untuned: bool = False
    seed: Seed = 0
    words: tuple[str, ...] = ()  # overrides of the training runs
    folder: str

    def __post_init__(self) -> None:
        check_lists({"attention": self.attentions})

    @property
    def reference(self) -> str:
        """The attention that the others are compared with."""
        return self.attentions[0]

    @property
    def trials_at_once(self) -> int | None:
        """The trials of each attention in a round; None: all. Rounds are for what learns from earlier trials."""
        return self.round if self.sampler == "tpe" or self.prune == "median" else None

    @property
    def growth_trials(self) -> int:
        """The trials in each new part of the space, as dense as the first ones: a part is half the first space."""
        return max(1, self.trials // 2)

    @property
    def final_seeds(self) -> range:
        """The seeds of the final runs; no trial has one of them."""
        return range(self.seed + 1, self.seed + 1 + self.seeds)
