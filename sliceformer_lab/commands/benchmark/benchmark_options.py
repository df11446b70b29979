"""What the user sets of a benchmark: the schema of conf/benchmark.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

Suite = Literal["operators", "layers", "encoders", "lra_speed", "samsa_speed", "goals"]
Count = Annotated[int, Field(ge=1)]

SUITES: dict[Suite, str] = {
    "operators": "the permutation alone: each backend against the published way and a memory copy",
    "layers": "one layer, projections included, against softmax attention and the same layer without an operator",
    "encoders": "the ViT of CIFAR-10 and the text encoder of LRA, end to end",
    "lra_speed": "Sliceformer's Table 3: training and inference steps per second and peak memory at 1K to 4K",
    "samsa_speed": "SAMSA's Table 1: inference at 1,024 tokens relative to fused softmax attention",
    "goals": "the speeds that this version promises, each measured again, met or missed",
}


@dataclass(frozen=True, kw_only=True)
class BenchmarkOptions:
    """The options of `conf/benchmark.yaml`."""

    suite: Suite = "layers"
    rounds: Annotated[int, Field(ge=2)] = 7  # each variant once a round; medians and quartiles are over rounds
    warmup: Count = 2  # rounds that are not counted
    threads: Count = 1
    device: Literal["cpu", "cuda"] = "cpu"
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"  # of weights and tokens
    compile: bool = False  # torch.compile for every variant, or for none
    sizes: tuple[Count, ...] | None = None  # numbers of tokens; None: the suite's own
    batch: Count | None = None  # None: the suite's own for each number of tokens
    attentions: tuple[str, ...] | None = None  # None: the suite's own
