"""The options of `map`: the schema of conf/map.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sliceformer_lab.config.option_types import Count, Name, Positive, Seed, check_lists

ProbeName = Literal["count", "recall", "back", "back_far", "rank", "select", "hist", "words", "spatial_recall"]
FIRST_SEED = 100  # of the reporting runs


@dataclass(frozen=True, kw_only=True)
class MapOptions:
    """The options of `conf/map.yaml`. Raises ValueError for lists that are empty or name something twice."""

    attentions: tuple[Name, ...] = ("mha", "csp", "csp_shift_only", "sliceformer", "random_permutation", "identity")
    probes: tuple[ProbeName, ...] = ("count", "recall", "back", "back_far", "rank", "select", "hist", "words")
    rates: tuple[Positive, ...] = (3e-3, 1e-2, 1e-3)
    edge_rate: Positive | None = 3e-2
    seed: Seed = 0
    seeds: Count = 3
    words: tuple[str, ...] = ()  # overrides of the training runs
    folder: str

    def __post_init__(self) -> None:
        check_lists({"attention": self.attentions, "probe": self.probes, "rates": self.rates})
        if self.seed in self.reporting_seeds:
            raise ValueError(f"seed={self.seed} is a seed of the reporting runs; take one below {FIRST_SEED}")

    @property
    def reporting_seeds(self) -> range:
        """The seeds of the reporting runs; no learning rate is chosen with them."""
        return range(FIRST_SEED, FIRST_SEED + self.seeds)
