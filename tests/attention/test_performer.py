"""Performer's random features: how close they come to softmax, how they are drawn and when again."""

from __future__ import annotations

from typing import Any

import torch
from torch.testing import assert_close

from sliceformer_lab.attention.contract import MAX_LEN, make_spec, tokens
from sliceformer_lab.attention.performer import Performer, orthogonal_gaussian


def make(**options: Any) -> Performer:
    return Performer(make_spec(), **options).eval()


def test_performer_directions_are_orthogonal_in_blocks_and_lean_to_no_side() -> None:
    blocks = torch.stack([orthogonal_gaussian(10, 4) for _ in range(2000)])
    for block in torch.split(blocks[0], 4):
        products = block @ block.T
        assert_close(products, torch.diag(products.diagonal()), atol=1e-5, rtol=0)
    assert_close(blocks.mean(0), torch.zeros(10, 4), atol=0.1, rtol=0)
    assert_close(blocks.square().mean(0), torch.ones(10, 4), atol=0.2, rtol=0)


def test_performer_redraws_every_so_many_training_steps_and_never_in_evaluation() -> None:
    layer, x = make(redraw_every=2), tokens(MAX_LEN)
    drawn = [layer.directions.clone()]

    def step(layer: Performer) -> bool:
        """Whether one more pass draws anew."""
        layer(x).sum().backward()
        layer.implied_map(x)
        drawn.append(layer.directions.clone())
        return not torch.equal(*drawn[-2:])

    assert [step(layer) for _ in range(3)] == [False] * 3
    assert [step(layer.train()) for _ in range(5)] == [False, False, True, False, True]
    resumed = make(redraw_every=2).train()
    resumed.load_state_dict(layer.state_dict())
    assert [step(resumed) for _ in range(2)] == [False, True]
