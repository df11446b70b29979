"""Performer's random features: how close they come to softmax, how they are drawn and when again."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.testing import assert_close

from sliceformer_lab.attention.contract import MAX_LEN, make_spec, tokens
from sliceformer_lab.attention.mha import MHA
from sliceformer_lab.attention.performer import Performer, orthogonal_gaussian


def make(**options: Any) -> Performer:
    return Performer(make_spec(), **options).eval()


def softmax_map(layer: Performer, x: Tensor) -> Tensor:
    """The weights of softmax attention with the projections of `layer`."""
    mha = MHA(make_spec())
    assert not mha.load_state_dict(layer.state_dict(), strict=False).missing_keys
    return mha.implied_map(x)


@torch.no_grad()
def test_performer_error_falls_with_the_square_root_of_the_number_of_features() -> None:
    x = tokens(MAX_LEN) / 2  # for larger tokens, exp is small compared with the constant that keeps features positive
    numbers = [64, 256, 1024]
    errors = []
    for number in numbers:
        squares = []
        for draw in range(20):
            torch.manual_seed(draw)
            layer = make(num_features=number)
            maps = layer.implied_map(x)
            assert maps is not None
            squares.append((maps - softmax_map(layer, x)).square().mean())
        errors.append(torch.stack(squares).mean().sqrt())
    log_number, log_error = torch.tensor(numbers).log2(), torch.stack(errors).log2()
    centred = log_number - log_number.mean()
    slope = float((centred * log_error).sum() / centred.square().sum())
    assert -0.6 < slope < -0.4


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
