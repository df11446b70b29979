"""What a search compares: each attention with its composed configuration, checked before the first run starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sliceformer_lab.commands.tune.search_space import Point, Space, own_point, own_values, words_at
from sliceformer_lab.commands.tune.tune_options import TuneOptions
from sliceformer_lab.config.checked import check_config
from sliceformer_lab.config.explain import job_config
from sliceformer_lab.config.plain_checks import missing_files
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.errors import DataError
from sliceformer_lab.runs.sweep import PlannedJob, override_key, quoted

OF_TRIALS = ("score_test=false", "pictures=false", "reference=null")  # a trial is only scored on validation

PRUNER, PRUNING = "sliceformer_lab.callbacks.prune.MedianPruning", "+callbacks.prune"


@dataclass(frozen=True, eq=False)
class Subject:
    """One attention of a search."""

    attention: str
    options: TuneOptions
    config: Mapping[str, Any]  # the composed configuration with the recipe's own values

    @property
    def own(self) -> dict[str, float]:
        """The recipe's own value of each option that a search may change."""
        return own_values(self.config)

    def own_point(self, space: Space) -> Point:
        """The recipe's own values as a point of the space."""
        return own_point(space, self.own)

    def found_words(self, point: Point) -> list[str]:
        """The overrides that give a run the values of a point."""
        return words_at(point, self.config)

    def trial(self, number: int, point: Point, medians: Path) -> PlannedJob:
        """The job of a trial; `medians` is the file that prune=median compares it with."""
        pruning = (f"{PRUNING}._target_={PRUNER}", f"{PRUNING}.file={quoted(medians)}")
        fixed = (*OF_TRIALS, *(pruning if self.options.prune == "median" else ()))
        words = (*self._words(self.options.seed), *fixed, *self.found_words(point))
        return PlannedJob(f"{self.attention}-{number:03d}", words)

    def final(self, seed: int, point: Point | None) -> PlannedJob:
        """The job of a final run with the values of a point; None: with the recipe's own."""
        kind = "tuned" if point is not None else "untuned"
        words = (*self._words(seed), *(self.found_words(point) if point is not None else ()))
        return PlannedJob(f"{self.attention}-{kind}-seed{seed}", words)

    def optim_words(self, point: Point) -> list[str]:
        """The words that optim=tuned:FOLDER/ATTENTION means: those of the optimiser, and the values of a point."""
        given = [word for word in self.options.words if override_key(word).split(".")[0] == "optim"]
        return [*given, *self.found_words(point)]

    def _words(self, seed: int) -> list[str]:
        return [*self.options.words, f"attention={self.attention}", f"seed={seed}"]


def subjects(options: TuneOptions) -> list[Subject]:
    """The attentions of a search. Raises LabError for options that some of them cannot run with."""
    return [Subject(name, options, _checked(name, options)) for name in options.attentions]


def _checked(attention: str, options: TuneOptions) -> dict[str, Any]:
    words = [*options.words, f"attention={attention}", f"seed={options.seed}", *OF_TRIALS]
    config = job_config(words)
    if config["selection"] == "best_test":
        raise ConfigError("selection=best_test: a search must not see the test set; use best_val or last")
    if missing := missing_files(config):
        raise DataError("; ".join(missing))
    check_config(config)
    return config
