"""The embedding of tokens, and what a part of the encoder computes when it is built."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from support.plans import build_data, build_task
from torch import nn

from sliceformer_lab.config.compose import compose_job
from sliceformer_lab.encoder.embed import ImageEmbedding, TokenEmbedding
from sliceformer_lab.encoder.graph_tokens import FeatureEmbedding
from sliceformer_lab.encoder.position import SinCosPosition


def test_token_dropout_takes_whole_tokens_in_training_and_never_the_cls_token() -> None:
    embedding = TokenEmbedding(50, 0, 8, cls=True, dropout=0.25)
    ids = torch.randint(1, 50, (40, 30))
    whole = embedding.eval()(ids)
    training = embedding.train()(ids)
    dropped = (training == 0).all(-1)
    assert not dropped[:, 0].any() and abs(dropped[:, 1:].float().mean() - 0.25) < 0.05
    torch.testing.assert_close(training[:, 0], whole[:, 0])
    torch.testing.assert_close(training[:, 1:][~dropped[:, 1:]], whole[:, 1:][~dropped[:, 1:]] / 0.75)


@pytest.mark.parametrize(
    ("words", "std"),
    {
        "task=cifar10 attention=mha task.pool=cls": 0.02,
        "recipe=sliceformer/table4_cifar10": 1.0,
        "recipe=csp/table3_cifar10 task.pool=cls": 1.0,
        "recipe=sliceformer/table4_dogs_vs_cats": 1.0,
    }.items(),
)
def test_positions_and_cls_start_with_the_deviation_of_the_option(words: str, std: float) -> None:
    config = compose_job([*words.split(), "encoder.depth=1"])
    config["data"]["root"] = "unused"
    torch.manual_seed(0)
    task = build_task(config, build_data(config).spec)
    assert task.embedding.cls.detach().std() == pytest.approx(std, rel=0.2)
    table = task.encoder.position.table.detach()
    assert table.std() == pytest.approx(std, rel=0.05) and table.abs().max() > 3 * std  # nothing is cut off


@pytest.mark.parametrize(
    "make",
    [
        lambda: SinCosPosition(torch.zeros(5, 8)),
        lambda: ImageEmbedding((4, 4), 1, 2, 8, cls=False, order="hilbert"),
        lambda: FeatureEmbedding((3, 4), 8),
    ],
    ids=["positions", "order", "offsets"],
)
def test_a_part_that_lost_what_it_computes_refuses_memory(make: Callable[[], nn.Module]) -> None:
    lost = make().to("meta")
    with pytest.raises(ValueError, match=r"computes (table|order|offsets) when it is built, .* has lost them"):
        lost.to_empty(device="cpu")
