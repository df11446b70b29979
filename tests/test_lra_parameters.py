"""The Long-Range Arena's models, built from the YAMLs as a run builds them: their parameters, to the integer."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch

from sliceformer_lab.build import build_data, build_task
from sliceformer_lab.compose import compose_root


class Model(NamedTuple):
    """Sizes in the Long-Range Arena's configuration of a task."""

    pool: str
    dim: int
    mlp_dim: int
    depth: int
    num_heads: int


MODELS = {
    "lra_listops": Model("cls", 512, 1024, 4, 8),
    "lra_text": Model("cls", 256, 1024, 4, 4),
    "lra_retrieval": Model("mean", 128, 512, 4, 4),  # the published two towers have no CLS token
}
PUBLISHED = {
    ("lra_listops", "sliceformer"): 6_851_594,
    ("lra_listops", "mha"): 8_948_746,
    ("lra_text", "sliceformer"): 2_962_434,
    ("lra_text", "mha"): 3_486_722,
    ("lra_retrieval", "sliceformer"): 956_546,
    ("lra_retrieval", "mha"): 1_087_618,
}


@pytest.mark.parametrize(("task", "attention"), PUBLISHED)
def test_parameters_are_those_of_the_published_code(task: str, attention: str) -> None:
    sizes = MODELS[task]
    options = (
        *(f"task={task}", f"attention={attention}", f"task.pool={sizes.pool}", "task.head=mlp", "encoder=tiny"),
        *(f"encoder.{name}={value}" for name, value in sizes._asdict().items() if name != "pool"),
        *("encoder.position=sincos", "encoder.value_bias=false", "encoder.out_bias=false"),
    )
    config = compose_root(options)
    config["data"]["root"] = "unused"
    with torch.device("meta"):
        model = build_task(config, build_data(config).spec)
    assert sum(parameter.numel() for parameter in model.parameters()) == PUBLISHED[task, attention]
