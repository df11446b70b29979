"""The options of `audit`: the schema of conf/audit.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sliceformer_lab.config.option_types import Count, Name, Natural, Positive, Seed, check_lists

Axis = Literal["params", "time"]
FIRST_SEED = 100  # of the reporting runs
FEWEST_SEEDS = 3  # for an interval
BASE = "mha"  # whose parameters and training time the rows get
SHOWN = {"params": "equal parameters", "time": "equal time"}


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """The options of `conf/audit.yaml`. Raises ValueError for options that contradict each other."""

    subject: Name = "csp"
    against: tuple[Name, ...] = (
        *("identity", "mean", "pooling", "random_permutation", "random_mixing", "depthwise_conv", "mha"),
    )
    axes: tuple[Axis, ...] = ("params", "time")
    seeds: Count = 10
    tuning_seeds: tuple[Seed, ...] = (0, 1, 2)
    rates: tuple[Positive, ...] = (1e-3, 3e-3, 1e-2)
    trials: Natural = 0
    margin: Positive | None = None
    force_time: bool = False
    words: tuple[str, ...] = ()  # overrides of the training runs
    folder: str

    def __post_init__(self) -> None:
        check_lists(
            {"against": self.against, "axes": self.axes, "tuning_seeds": self.tuning_seeds, "rates": self.rates}
        )
        if self.subject in self.against:
            raise ValueError(f"against: names {self.subject}, the attention that is audited; leave it out")
        if self.seeds < FEWEST_SEEDS:
            raise ValueError(f"seeds={self.seeds}: an interval needs {FEWEST_SEEDS}, one exact test needs 6")
        if used := sorted(set(self.tuning_seeds) & set(self.reporting_seeds)):
            raise ValueError(f"tuning_seeds: {used[0]} is a seed of the reporting runs; take seeds below {FIRST_SEED}")

    @property
    def attentions(self) -> tuple[str, ...]:
        """All rows: the subject first."""
        return (self.subject, *self.against)

    @property
    def reporting_seeds(self) -> range:
        """The seeds of the reporting runs; no trial has one of them."""
        return range(FIRST_SEED, FIRST_SEED + self.seeds)
