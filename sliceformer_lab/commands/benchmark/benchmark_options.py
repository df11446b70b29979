"""The options of `benchmark` and its suites: the schema of conf/benchmark.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from sliceformer_lab.config.option_types import Count, check_lists

Suite = Literal["operators", "layers"]
Precision = Literal["float32", "bfloat16", "float16"]

SUITES: dict[Suite, str] = {
    "operators": "the permutation alone: each backend against the published implementation and a memory copy",
    "layers": "one layer with its projections, against softmax attention and against a layer without an operator",
}


@dataclass(frozen=True, kw_only=True)
class BenchmarkOptions:
    """The options of `conf/benchmark.yaml`. Raises ValueError for an empty list, or operators with padding."""

    suite: Suite = "layers"
    rounds: Annotated[int, Field(ge=2)] = 7  # each variant runs once a round; medians and quartiles are over rounds
    warmup: Count = 2  # rounds before the measured ones
    threads: Count = 1
    device: Literal["cpu", "cuda"] = "cpu"
    dtype: Precision = "float32"  # of weights and inputs
    compile: bool = False  # torch.compile for all variants
    sizes: tuple[Count, ...] | None = None  # numbers of tokens; None: those of the suite
    batch: Count | None = None  # None: that of the suite for each number of tokens
    attentions: tuple[str, ...] | None = None  # None: those of the suite
    padded: bool = False  # layers on samples that have a quarter to all of the tokens

    def __post_init__(self) -> None:
        given = {"sizes": self.sizes, "attentions": self.attentions}
        check_lists({name: values for name, values in given.items() if values is not None})
        if self.padded and self.suite != "layers":
            raise ValueError("padded=true pads the samples of layers; choose suite=layers")
