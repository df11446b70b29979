"""The options of a comparison, which `audit` and `tune` share: the schema of conf/audit.yaml and conf/tune.yaml."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal

from sliceformer_lab.config.option_types import Count, Name, Natural, Positive, Seed, check_lists
from sliceformer_lab.runs.papers import TRIAL_OPTIONS
from sliceformer_lab.runs.sweep import override_key

Axis = Literal["own", "params", "time"]
Search = Literal["lr", "lr_wd", "recipe"]
FIRST_SEED = 100  # of the reporting runs
MIN_SEEDS, MIN_TUNING_SEEDS = 3, 2  # for an interval; for a choice whose uncertainty is known
BASE_ROW = "mha"  # whose parameters and training time the rows get
AXIS_NAMES = {"own": "the sizes given", "params": "equal parameters", "time": "equal time"}
COMPULSORY_ROWS = ("identity", "mean", "depthwise_conv", "random_permutation", BASE_ROW, "mha_rope")
ROWS_OF_PARTS = {
    "csp": ("csp_shift_only", "csp_sort_only"),  # without its sort, without its shift
    "samsa": ("samsa_random",),  # without its scores
}
SUBSTITUTE_ROWS = {"mean": ("pooling",)}  # rows that do as well
POSITION_ROWS = ("mha_rope", "mha_sincos2d")  # only the better one on validation is compared
VARIANTS = {  # rows that are an attention with options of the model
    "mha_rope": ("attention=mha", "encoder.position=rope"),
    "mha_sincos2d": ("attention=mha", "encoder.position=sincos2d"),
    "mha_bias": ("attention=mha", "task.bias=true"),  # of molecules: with distances and bonds
    "mha_no_bias": ("attention=mha", "task.bias=false"),
}

RENAMED = ("subject", "against", "attentions", "probes", "words", "folder", "retry")  # in a command, or not part of it


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """What a comparison and a map share."""

    seeds: Count
    retry: bool = False
    words: tuple[str, ...] = ()  # overrides of the training runs
    folder: str

    @property
    def is_trial(self) -> bool:
        """Whether the runs see a few batches only, as with debug=fast, so that they are no result."""
        return any(override_key(word) in ("debug", *TRIAL_OPTIONS) for word in self.words)

    @property
    def reporting_seeds(self) -> range:
        """The seeds of the reporting runs; no learning rate is chosen with them."""
        return range(FIRST_SEED, FIRST_SEED + self.seeds)


@dataclass(frozen=True, kw_only=True)
class CompareOptions(SearchOptions):
    """One attention against others. Raises ValueError for options that contradict each other."""

    subject: Name
    against: tuple[Name, ...] | None  # None: all compulsory rows
    axes: tuple[Axis, ...] = ("own",)
    seeds: Count = 10
    splits: Natural = 0
    tuning_seeds: tuple[Seed, ...] = (0, 1)
    rates: tuple[Positive, ...] = (1e-3, 3e-3, 1e-2)
    trials: Natural = 0
    search: Search = "lr"
    margin: Positive | None = None
    force_time: bool = False
    untuned: bool = False

    def __post_init__(self) -> None:
        lists = {"axes": self.axes, "tuning_seeds": self.tuning_seeds, "rates": self.rates}
        check_lists(lists | ({"against": self.others} if self.others else {}))
        if self.subject in self.others:
            raise ValueError(f"against: names {self.subject}, the attention that is compared; leave it out")
        if len(self.reporting_seeds) < MIN_SEEDS:
            name, given = ("splits", self.splits) if self.splits else ("seeds", self.seeds)
            raise ValueError(f"{name}={given}: an interval needs {MIN_SEEDS}")
        if len(self.tuning_seeds) < MIN_TUNING_SEEDS:
            raise ValueError(f"tuning_seeds={list(self.tuning_seeds)}: a choice needs {MIN_TUNING_SEEDS}, as in [0,1]")
        if used := sorted({*self.tuning_seeds, self.deciding_seed} & set(self.reporting_seeds)):
            raise ValueError(f"tuning_seeds: {used[0]} is a seed of the reporting runs; take seeds below {FIRST_SEED}")

    @property
    def others(self) -> tuple[str, ...]:
        """The rows that the subject is compared with; by default all compulsory ones."""
        if self.against is not None:
            return self.against
        return tuple(name for name in (*COMPULSORY_ROWS, *ROWS_OF_PARTS.get(self.subject, ())) if name != self.subject)

    @property
    def names(self) -> tuple[str, ...]:
        """All rows: the subject first."""
        return (self.subject, *self.others)

    @property
    def deciding_seed(self) -> int:
        """The third seed, which decides where the tuning seeds disagree."""
        return max(self.tuning_seeds) + 1

    @property
    def reporting_seeds(self) -> range:
        """One for each split if there are several."""
        return range(FIRST_SEED, FIRST_SEED + (self.splits or self.seeds))


def repeat_command(word: str, names: Mapping[str, Sequence[str]], options: SearchOptions) -> str:
    """The command line of a comparison or a map; `names` are its rows and columns."""
    chosen = {field.name: getattr(options, field.name) for field in fields(options)}
    words = [
        *(f"{key}={','.join(given)}" for key, given in names.items() if given),
        *(word for word in options.words if not word.startswith("paths.")),
        *(f"{key}={_format_word(value)}" for key, value in chosen.items() if key not in RENAMED and value is not False),
    ]
    return f"python -m sliceformer_lab {word} {' '.join(map(shlex.quote, words))}"


def _format_word(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{','.join(map(_format_word, value))}]"
    if isinstance(value, float):
        return f"{value:g}"
    return "null" if value is None else "true" if value is True else str(value)
