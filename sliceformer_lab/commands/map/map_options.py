"""The options of `map`: the schema of conf/map.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from sliceformer_lab.commands.compare.compare_options import FIRST_SEED, SearchOptions
from sliceformer_lab.config.option_types import Count, Name, Positive, Seed, check_lists

ProbeName = Literal["count", "recall", "back", "back_far", "rank", "select", "hist", "words"]
PROBES: tuple[ProbeName, ...] = get_args(ProbeName)


@dataclass(frozen=True, kw_only=True)
class MapOptions(SearchOptions):
    """The options of `conf/map.yaml`. Raises ValueError for lists that are empty or name something twice."""

    attentions: tuple[Name, ...] = ("mha", "csp", "csp_shift_only", "sliceformer", "random_permutation", "identity")
    probes: tuple[ProbeName, ...] = PROBES
    rates: tuple[Positive, ...] = (3e-3, 1e-2, 1e-3, 3e-2)
    seed: Seed = 0
    seeds: Count = 3

    def __post_init__(self) -> None:
        check_lists({"attention": self.attentions, "probe": self.probes, "rates": self.rates})
        if {*self.tuning_seeds} & {*self.reporting_seeds}:
            fault = f"seed={self.seed}: it or one of the two after it is a seed of the reporting runs"
            raise ValueError(f"{fault}; take one below {FIRST_SEED - 2}")

    @property
    def tuning_seeds(self) -> tuple[int, int, int]:
        """The two seeds that choose a learning rate, and a further one for rates that these do not agree on."""
        return self.seed, self.seed + 1, self.seed + 2
