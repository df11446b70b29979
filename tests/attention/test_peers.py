"""Baselines where golden files do not reach: extreme numbers, and rows and columns of patches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.subnormals import CountSubnormals
from torch.testing import assert_close

from sliceformer_lab.attention import Attention, build_layer
from sliceformer_lab.attention.agent import Agent
from sliceformer_lab.attention.base import BlockInputs
from sliceformer_lab.attention.contract import HEADS, MAX_LEN, build, make_spec, tokens
from sliceformer_lab.attention.cosformer import Cosformer
from sliceformer_lab.attention.espformer import ESPFormer
from sliceformer_lab.attention.gated_kernel import GatedKernel
from sliceformer_lab.attention.gmlp import GMLP
from sliceformer_lab.attention.sinkformer import Sinkformer
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.compose import load_option


@pytest.mark.parametrize("length", [1, 5, 13, 16])
def test_agents_on_a_grid_are_averages_of_real_tokens_alone(length: int) -> None:
    """Against softmax over the means of the cells that hold real tokens, one cell at a time."""
    layer = build(lambda spec: Agent(spec, agents=4), grid=(4, 4), num_prefix=1, max_len=17, num_heads=1)
    v, q, k = (tokens(17, batch=1, seed=seed) for seed in range(3))
    padding = Padding.from_lengths(torch.tensor([length]), 17)
    patches = torch.arange(16).unflatten(0, (2, 2, 2, 2)).transpose(1, 2).reshape(4, 4) + 1  # the tokens of each cell
    cells = [real for cell in patches if len(real := cell[cell < length])]
    agents = torch.stack([q[0, cell].mean(dim=0) for cell in cells]) if cells else q.new_zeros(1, q.shape[2])
    gathered = (agents @ k[0, :length].T / q.shape[2] ** 0.5).softmax(dim=-1) @ v[0, :length]
    expected = (q[0] @ agents.T / q.shape[2] ** 0.5).softmax(dim=-1) @ gathered
    garbage = [x.masked_fill(~padding.mask[..., None], 50) for x in (v, q, k)]
    assert_close(layer.mix(*garbage, BlockInputs(padding))[0, :length], expected[:length])


def test_espformer_computes_with_almost_no_subnormal_numbers() -> None:
    layer = ESPFormer(make_spec(dim=32, num_heads=2))
    x = torch.randn(4, 64, 32, requires_grad=True)
    with CountSubnormals() as count:
        layer(x).square().mean().backward()
    assert count.numbers > 1e6
    assert count.subnormals < 1e-4 * count.numbers  # the plain formula has 1.4 %: five times slower on CPUs


def test_gmlp_starts_with_a_gate_near_one() -> None:
    layer = GMLP(make_spec())
    v, gated, _ = layer.project(tokens(12))
    assert_close(layer.mix(v, gated), gated, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize(
    ("name", "options", "neighbours"),
    [
        ("rala", {"kernel_size": 3}, True),
        ("polaformer", {"kernel_size": 3}, True),
        ("pooling", {}, True),
        ("depthwise_conv", {}, True),
        ("shift", {"steps": "s2"}, False),
        ("agent", {"agents": 4}, False),
        ("csp", {"grid": True, "group_size": 4}, False),
    ],
)
def test_neighbours_are_those_in_the_image_and_prefix_tokens_are_none(
    name: str, options: dict[str, Any], neighbours: bool
) -> None:
    order = torch.randperm(12, generator=torch.Generator().manual_seed(3))

    def layer(token_order: tuple[int, ...] | None) -> Attention:
        torch.manual_seed(0)
        spec = make_spec(grid=(3, 4), num_prefix=1, max_len=13, token_order=token_order)
        return build_layer(load_option("attention", name) | options, spec)

    x = tokens(13, batch=1)
    by_rows, reordered = layer(None), layer(tuple(order.tolist()))
    place = torch.cat([torch.zeros(1, dtype=torch.int64), 1 + order])
    assert_close(reordered(x[:, place]), by_rows(x)[:, place])
    if neighbours:
        one = torch.zeros(1, 13, 8)
        one[0, 1 + 5] = 1  # row 1, column 1
        receive = by_rows.conv if isinstance(by_rows, GatedKernel) else by_rows.mix
        received = receive(one, None)[0].abs().sum(1) > 0
        assert received.nonzero().flatten().tolist() == [1 + 4 * row + col for row in range(3) for col in range(3)]


def test_a_token_in_front_of_a_sequence_has_neighbours() -> None:
    spec = make_spec(num_prefix=1, max_len=9)
    for name in ("depthwise_conv", "pooling"):
        layer = build_layer(load_option("attention", name), spec)
        one = torch.zeros(1, 9, 8)
        one[0, 1] = 1
        received = layer.mix(one, None)[0].abs().sum(1) > 0
        assert received.nonzero().flatten().tolist() == [0, 1, 2], name


def test_longformer_rotates_global_tokens_alone_in_any_order_of_patches() -> None:
    order = tuple(torch.randperm(12, generator=torch.Generator().manual_seed(3)).tolist())
    spec = make_spec(grid=(3, 4), num_prefix=1, max_len=13, token_order=order, rope=True)
    layer = build_layer(load_option("attention", "longformer_cls") | {"num_global": 3}, spec)
    assert layer(tokens(13)).shape == tokens(13).shape


def test_sinkformer_normalises_in_32_bits_under_autocast() -> None:
    torch.manual_seed(0)
    layer = Sinkformer(make_spec(max_len=64), n_it=3).eval()
    _, q, k = layer.project(3 * tokens(64))
    with torch.autocast("cpu", torch.bfloat16):
        sums = layer.mix(torch.ones(len(q), 64, layer.width), q, k)
    assert_close(sums, torch.ones_like(sums), atol=4e-3, rtol=0)


def test_sinkformer_bears_scores_that_exp_does_not() -> None:
    maps = Sinkformer(make_spec(), n_it=5).implied_map(100 * tokens(MAX_LEN))
    assert maps is not None
    assert_close(maps.sum(dim=3), torch.ones(2, HEADS, MAX_LEN))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_cosformer_runs_in_half_precision_without_autocast(dtype: torch.dtype) -> None:
    layer, x = build(Cosformer), tokens(MAX_LEN)
    expected = layer(x)
    assert_close(layer.to(dtype)(x.to(dtype)).float(), expected, atol=2e-2, rtol=2e-2)
