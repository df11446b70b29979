"""What csp and sliceformer keep: permutations, aligned orders, grids and the reach of shifts."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from sliceformer_lab.attention import LayerSpec
from sliceformer_lab.attention.base import BlockInputs
from sliceformer_lab.attention.csp import CSP, reach_of_shifts
from sliceformer_lab.attention.permutation import PermutationAttention
from sliceformer_lab.attention.published_padding import CSPPublishedPadding
from sliceformer_lab.attention.sliceformer import Sliceformer
from sliceformer_lab.batch import Padding
from sliceformer_lab.order import token_order


def make(cls: type[PermutationAttention], *, spec: dict[str, Any] | None = None, **options: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"dim": 8, "num_heads": 2, "depth": 3, "max_len": 12, "grid": (3, 4) if options.get("grid") else None}
    return cls(LayerSpec(**(sizes | (spec or {}))), **options).eval()


PADDING = Padding.from_lengths(torch.tensor([12, 7, 1]), 12)


@pytest.mark.parametrize("size", [2, 12])
def test_csp_in_the_order_of_channel_0_is_the_limit_of_grouped_sinkhorn_attention(size: int) -> None:
    """CSP, Theorem 2: Sinkhorn's normalisation of exp(v_0 v_c^T / tau) in each group, for a small tau."""
    order = torch.rand(1, 12, 8, generator=torch.Generator().manual_seed(0)).argsort(dim=1)
    v = torch.linspace(-2, 2, 12, dtype=torch.float64)[order]
    groups = v.transpose(1, 2).unflatten(2, (-1, size))  # (B, C, K, G)
    scores = groups[:, :1, :, :, None] * groups[:, :, :, None, :] / 0.01
    for _ in range(1000):
        scores = scores - scores.logsumexp(dim=-1, keepdim=True)
        scores = scores - scores.logsumexp(dim=-2, keepdim=True)
    expected = (scores.exp() @ groups[..., None]).squeeze(-1).flatten(2).transpose(1, 2)
    ours = make(CSP, shift="none", group_size=size, reference="channel0").mix(v)
    assert_close(ours, expected, atol=0.02, rtol=0)  # neighbouring values are .36 apart


def test_max_exchange_of_infinitely_small_values_does_not_reach_into_padding() -> None:
    v = torch.full((3, 12, 8), -torch.inf)
    index = make(Sliceformer, order="max_exchange").source_index(v, PADDING)
    assert torch.equal(index[2, 0], torch.zeros(8, dtype=torch.int64))


def test_published_padding_of_a_batch_without_padded_rows_is_that_of_whole_samples() -> None:
    """The padding of graphs with tokens for bonds is always there, also of a single graph."""
    layer, v = make(CSPPublishedPadding), torch.randn(2, 8, 8)
    whole = Padding(torch.tensor([8, 8]), torch.ones(2, 8, dtype=torch.bool))
    assert torch.equal(layer.mix(v, given=BlockInputs(whole)), layer.mix(v))


def test_steps_come_from_max_len_and_not_from_the_batch() -> None:
    v = torch.randn(2, 6, 8)
    moved = make(CSP, shift="linear_paper", group_size=1, spec={"max_len": 24}).mix(v)
    expected = [v[..., c].roll((c + 1) * 3 % 24 % 6, 1) for c in range(8)]
    assert torch.equal(moved, torch.stack(expected, dim=2))


def test_random_directions_follow_the_seed_and_travel_in_checkpoints() -> None:
    layer, same = make(CSP, order="random"), make(CSP, order="random")
    torch.manual_seed(1)
    other = CSP(layer.spec, order="random")
    v = torch.randn(2, 12, 8)
    assert layer.directions.shape == (6, 8)
    assert torch.equal(layer.mix(v), same.mix(v))
    assert not torch.equal(layer.mix(v), other.mix(v))
    other.load_state_dict(layer.state_dict())
    assert torch.equal(layer.mix(v), other.mix(v))


def test_dropout_acts_on_the_weights_of_the_bias_in_training_only() -> None:
    layer, v, bias = make(CSP, spec={"attention_dropout": 0.5}), torch.randn(3, 12, 8), torch.zeros(3, 2, 12, 12)
    assert torch.equal(layer.mix(v, given=BlockInputs(bias=bias)), layer.mix(v, given=BlockInputs(bias=bias)))
    assert not torch.equal(
        layer.train().mix(v, given=BlockInputs(bias=bias)), layer.mix(v, given=BlockInputs(bias=bias))
    )
    assert torch.equal(layer.mix(v), layer.mix(v))


def test_interleave_warns_once_where_the_equations_leave_layers_plain(caplog: pytest.LogCaptureFixture) -> None:
    def build(depth: int, **options: Any) -> list[Any]:
        return [
            make(Sliceformer, order="interleave", spec={"depth": depth, "index": index}, **options)
            for index in range(depth)
        ]

    build(3)
    build(9, interleave_rule="block", interleave_scope="head")
    assert caplog.records == []
    layers = build(9)
    assert [bool(layer.columns.any()) for layer in layers] == [False] * 6 + [True] * 2 + [False]
    (record,) = caplog.records
    assert "nothing downwards in 7 of 9 layers" in record.getMessage()
    assert "attention.interleave_rule=block attention.interleave_scope=head" in record.getMessage()


def test_only_an_aligned_sort_has_a_reference_channel() -> None:
    with pytest.raises(ValueError, match=r"set attention\.reference=channel0"):
        make(CSP).reference_channel(torch.zeros(1, 12, 8))


GRID = {"grid": (4, 6), "num_prefix": 1, "max_len": 25}
ALONG_CURVE = token_order("hilbert", (4, 6))
HILBERT = {"token_order": None if ALONG_CURVE is None else tuple(ALONG_CURVE.tolist())}


@pytest.mark.parametrize("order", [{}, HILBERT], ids=["raster", "hilbert"])
def test_grid_rolls_rows_and_columns_whatever_the_order_of_the_patches(order: dict[str, Any]) -> None:
    layer = make(CSP, spec=GRID | order, grid=True, group_size=1, shift="unit")
    pictures, cls_token = torch.randn(2, 4, 6, 8), torch.randn(2, 1, 8)
    places = torch.tensor(order.get("token_order", range(24)))
    mixed = layer.mix(torch.cat([cls_token, pictures.flatten(1, 2)[:, places]], dim=1))
    rolled = [pictures[..., c].roll((c // 6, c % 6), dims=(1, 2)) for c in range(8)]
    assert torch.equal(mixed[:, 1:], torch.stack(rolled, dim=-1).flatten(1, 2)[:, places])
    assert torch.equal(mixed[:, :1], cls_token)


@pytest.mark.parametrize("options", [{"group_size": 4, "shift": "linear_coprime"}, {"reference": "channel0"}], ids=str)
def test_grid_moves_every_real_token_to_one_place_and_has_no_state(options: dict[str, Any]) -> None:
    padding = Padding.from_lengths(torch.tensor([25, 7, 2]), 25)
    with torch.device("meta"):
        make(CSP, spec=GRID, grid=True, **options)
    layer, x = make(CSP, spec=GRID, grid=True, **options), torch.randn(3, 25, 8)
    assert set(layer.state_dict()) == {"value.weight", "value.bias", "out.weight", "out.bias"}
    for pad in (None, padding):
        maps, real = layer.implied_map(x, pad), torch.ones(3, 25) if pad is None else pad.mask.float()
        for axis in (2, 3):
            assert torch.equal(maps.sum(dim=axis), real[:, None].expand(3, layer.width, 25))
        v = layer.value(x)
        assert_close(torch.einsum("bcij,bjc->bic", maps, v), layer.mix(v, given=BlockInputs(pad)))


def test_grid_sorts_squares_of_four_patches() -> None:
    layer, v = make(CSP, spec=GRID, grid=True, group_size=4, shift="none"), torch.randn(2, 25, 8)
    squares = layer.mix(v)[:, 1:].unflatten(1, (2, 2, 3, 2)).transpose(2, 3).flatten(3, 4)  # (B, 2, 3, 4, C)
    expected = v[:, 1:].unflatten(1, (2, 2, 3, 2)).transpose(2, 3).flatten(3, 4).sort(dim=3).values
    assert torch.equal(squares, expected)


def test_grid_does_not_depend_on_the_amount_of_padding() -> None:
    layer, v = make(CSP, spec=GRID, grid=True, group_size=4), torch.randn(2, 25, 8)
    for length in (1, 9, 24):
        long = layer.mix(v, given=BlockInputs(Padding.from_lengths(torch.tensor([length, 25]), 25)))
        short = layer.mix(v[:1, :length], given=BlockInputs(Padding.from_lengths(torch.tensor([length]), length)))
        assert torch.equal(long[:1, :length], short)


@pytest.mark.parametrize("options", [{}, {"order": "random"}, {"reference": "channel0"}, {"group_size": None}])
@pytest.mark.parametrize("padded", [False, True])
def test_on_a_grid_prefix_tokens_without_patches_stay(options: dict[str, Any], padded: bool) -> None:
    layer, v = make(CSP, spec=GRID, grid=True, **options), torch.randn(2, 1, 8)
    padding = Padding.from_lengths(torch.tensor([1, 1]), 1) if padded else None
    assert layer.mix(v, given=BlockInputs(padding)).equal(v)
    assert layer.source_index(v, padding).equal(torch.zeros(2, 1, 8, dtype=torch.int64))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"group_size": 1}, "layer reach 8 of 16 .* 2 layers 8: no value can bridge .*shift=linear_coprime"),
        ({}, "layer reach 8 of 16 .* 2 layers 8; only the sort, .* by at most 1 place in a .*; attention.shift=linear"),
        ({"shift": "linear_coprime"}, "layer reach 9 of 16 distances between tokens, those of all 2 layers 16$"),
        ({"shift": "none"}, None),
    ],
)
def test_reach_of_the_shifts_is_one_sentence(options: dict[str, Any], sentence: str | None) -> None:
    layers = [make(CSP, spec={"index": i, "depth": 2, "max_len": 16}, **options) for i in range(2)]
    found = reach_of_shifts(layers)
    assert found is None if sentence is None else re.search(sentence, str(found))


def test_the_reach_of_a_single_layer_is_told_without_that_of_all_layers() -> None:
    layers = [make(CSP, spec={"index": 0, "depth": 1, "max_len": 16}, group_size=4)]
    sentence = "the shifts of one layer reach 8 of 16 distances between tokens; only the sort, which moves a value by "
    assert str(reach_of_shifts(layers)).startswith(f"{sentence}at most 3 places in a layer")


def test_the_reference_channel_has_the_dropout_that_the_sort_had() -> None:
    torch.manual_seed(0)
    layer = make(CSP, reference="channel0", bias_formula="sort_of_mix", group_size=None, shift="none").train()
    object.__setattr__(layer.spec, "attention_dropout", 0.5)
    v, given = torch.randn(2, 12, 8), BlockInputs(bias=torch.randn(2, 2, 12, 12))
    mixed = layer.mix(v, given=given)
    reference = layer.reference_channel(v, given, mixed)
    torch.testing.assert_close(reference, mixed[..., 0])
    assert not torch.allclose(layer.reference_channel(v, given), reference), "dropout draws other masks each time"
