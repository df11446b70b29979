"""Token maps: their numbers against what is known of them, and what they are read off against what operators do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch
from support.plans import plan_of
from support.runs import small_config
from torch import Tensor, nn
from torch.testing import assert_close

from sliceformer_lab.attention import LayerSpec, build_layer
from sliceformer_lab.batch import Padding
from sliceformer_lab.commands.inspect.mixing import Mixed, mixing
from sliceformer_lab.commands.inspect.models import Group, Source, Study
from sliceformer_lab.commands.inspect.show_maps import DISTANCE_BINS, SHIFT, ShowMaps
from sliceformer_lab.config.compose import load_option
from sliceformer_lab.config.schema import check_node
from sliceformer_lab.encoder.factory import build_encoder
from sliceformer_lab.measures import maps as functions
from sliceformer_lab.permute.schedule import distances_reached, shift_steps

TOKENS, CHANNELS, HEADS = 12, 8, 2
PERMUTATIONS = (
    *("csp", "csp_random_order", "csp_reference", "csp_shift_only", "csp_complete", "random_permutation"),
    *("sliceformer", "sliceformer_interleave", "sliceformer_max"),
)
AVERAGES = (
    *("mha", "samsa", "performer", "linear", "sinkformer", "identity", "mean", "depthwise_conv"),
    *("rala", "polaformer", "lion_selective", "s4d", "agent", "espformer", "csp_gated"),
)


def mixed(
    name: str, batch: int = 1, padding: Padding | None = None, bias: Tensor | None = None, **options: Any
) -> Mixed:
    """What the operator of an attention was given in a forward pass on random tokens."""
    torch.manual_seed(0)
    spec = LayerSpec(dim=CHANNELS, num_heads=HEADS, max_len=TOKENS)
    attention = build_layer(load_option("attention", name) | options, spec).eval()
    x = torch.randn(batch, TOKENS, CHANNELS)
    with mixing([SimpleNamespace(attention=attention)]) as calls, torch.no_grad():
        attention(x, padding, bias)
    assert "mix" not in vars(attention)
    return calls[0]


def found(call: Mixed) -> tuple[Tensor, Tensor]:
    return call.maps(100)


@pytest.mark.parametrize("name", [*PERMUTATIONS, *AVERAGES])
def test_maps_applied_to_the_values_give_the_output_of_the_operator(name: str) -> None:
    call = mixed(name, **({"supports": False, "sample_size": 4} if name == "samsa" else {}))
    chosen, maps = found(call)
    values = call.v[0].unflatten(-1, (len(maps), -1)).transpose(0, 1)  # (M, N, 1 or D)
    assert chosen.tolist() == list(range(len(maps)))
    assert_close((maps @ values).transpose(0, 1).flatten(1), call.output[0], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["sliceformer", "csp"])
def test_maps_of_a_sort_of_mixed_values_are_those_of_the_values_it_sorts(name: str) -> None:
    bias = torch.randn(1, HEADS, TOKENS, TOKENS, generator=torch.Generator().manual_seed(1))
    call = mixed(name, bias=bias, bias_formula="sort_of_mix")
    sorted_values = bias[0].softmax(dim=-1) @ call.v[0].unflatten(-1, (HEADS, -1)).transpose(0, 1)  # (H, N, D)
    per_channel = sorted_values.transpose(1, 2).flatten(0, 1)[..., None]  # (C, N, 1)
    assert_close((found(call)[1] @ per_channel)[..., 0].T, call.output[0])


@pytest.mark.parametrize("name", PERMUTATIONS)
def test_a_permutation_has_sums_of_one_full_rank_and_one_token_to_read(name: str) -> None:
    maps = found(mixed(name))[1]
    assert maps.shape == (CHANNELS, TOKENS, TOKENS)
    for error in (functions.row_error(maps), functions.column_error(maps)):
        assert not error.any()
    assert_close(functions.rank_share(maps), torch.ones(CHANNELS).double())
    assert_close(functions.density(maps), torch.full((CHANNELS,), 1 / TOKENS).double())
    assert_close(functions.tokens_read(maps), torch.ones(CHANNELS).double())


def test_maps_of_softmax_are_its_weights() -> None:
    torch.manual_seed(0)
    attention = build_layer(load_option("attention", "mha"), LayerSpec(dim=CHANNELS, num_heads=HEADS)).eval()
    x = torch.randn(1, TOKENS, CHANNELS)
    with mixing([SimpleNamespace(attention=attention)]) as calls, torch.no_grad():
        attention(x)
        weights = attention.implied_map(x)
    maps = found(calls[0])[1]
    assert_close(maps, weights[0], atol=1e-5, rtol=1e-4)
    assert not functions.row_error(maps).gt(1e-5).any() and functions.column_error(maps).gt(1e-2).all()
    assert functions.density(maps).eq(1).all() and functions.tokens_read(maps).gt(2).all()
    assert_close(functions.tokens_read(-3 * maps), functions.tokens_read(maps))  # maps may have any sums of rows


def test_attention_to_fewer_points_than_tokens_has_no_maps() -> None:
    call = mixed("mha")
    v, k = call.v[:, :4], call.k[:, :4]  # the inducing points of block=set
    few = replace(call, v=v, k=k, output=call.attention.mix(v, call.q, k))
    assert few.sample(0).maps(100) is None


def test_maps_of_few_summaries_have_their_rank() -> None:
    _, maps = found(mixed("linear"))
    assert_close(functions.rank_share(maps), torch.full((len(maps),), CHANNELS / HEADS / TOKENS).double())


@pytest.mark.parametrize("name", ["csp", "mha", "random_permutation", "samsa"])
def test_a_sample_without_its_padding_is_mixed_as_it_was_with_it(name: str) -> None:
    lengths = torch.tensor([TOKENS, 7])
    padding = Padding.from_lengths(lengths, TOKENS)
    call = mixed(name, batch=2, padding=padding)
    for index, length in enumerate(lengths.tolist()):
        alone = call.sample(index)
        assert alone.v.shape == (1, length, CHANNELS)
        assert_close(alone.output_of(alone.v)[0], call.output[index, :length], atol=1e-5, rtol=1e-4)
        assert found(alone)[1].shape[1:] == (length, length)


@pytest.mark.parametrize("name", ["csp_published_padding", "sliceformer_published_padding"])
def test_no_map_is_shown_where_padded_rows_take_part(name: str) -> None:
    padded = mixed(name, batch=2, padding=Padding.from_lengths(torch.tensor([TOKENS, 7]), TOKENS))
    assert padded.maps_of(1, 100) is None
    assert mixed(name).maps_of(0, 100) is not None, "without padding a map is what it did"


def test_a_shift_moves_every_token_by_its_step_or_around_the_end() -> None:
    step = 3
    maps = functions.matrices((torch.arange(TOKENS)[:, None] - step) % TOKENS)
    values, shares = functions.weighted_distances(maps, functions.token_distances(TOKENS))
    moved = {float(d): float(share) for d, share in zip(values, shares, strict=True) if share}
    assert moved == pytest.approx({step: (TOKENS - step) / TOKENS, TOKENS - step: step / TOKENS})


def test_travelled_distances_are_those_counted_one_by_one() -> None:
    generator = torch.Generator().manual_seed(0)
    sources = torch.rand(TOKENS, 5, generator=generator).argsort(0)
    grid = (3, 4)
    counted = [
        ((i // 4 - int(sources[i, m]) // 4) ** 2 + (i % 4 - int(sources[i, m]) % 4) ** 2) ** 0.5
        for m in range(5)
        for i in range(TOKENS)
    ]
    values, shares = functions.weighted_distances(functions.matrices(sources), functions.apart_on_grid(grid))
    assert float(values @ shares) == pytest.approx(sum(counted) / len(counted))
    for level in (0.1, 0.5, 0.9):
        ours = functions.quantile(values, shares, level)
        assert ours == pytest.approx(sorted(counted)[max(round(level * len(counted)) - 1, 0)])
    bins = functions.binned(values, shares, 4)
    width = max(values.tolist()) / 4
    assert bins.tolist() == pytest.approx(
        [sum(min(int(d / width), 3) == b for d in counted) / len(counted) for b in range(4)]
    )


def test_overlap_of_permutations_is_the_share_of_equal_entries() -> None:
    first, second = torch.arange(6)[:, None], torch.tensor([[0, 1, 2, 4, 3, 5]]).T
    a, b = functions.matrices(first), functions.matrices(second)
    assert functions.overlap(a, a).tolist() == [1.0]
    assert functions.overlap(a, b).tolist() == pytest.approx([4 / 6])
    assert functions.overlap(a, -a).tolist() == [0.0]
    assert functions.overlap(a, torch.full_like(a, 1 / 6)).tolist() == pytest.approx([1 / 6])


def test_shifts_reach_the_distances_of_their_steps_and_softmax_reaches_all() -> None:
    steps = [shift_steps("linear_paper", CHANNELS, TOKENS), shift_steps("unit", CHANNELS, TOKENS)]
    layers = [found(mixed("csp_shift_only", shift=shift))[1] for shift in ("linear_paper", "unit")]
    first = functions.reads_through(layers[0])
    both = functions.reads_through(layers[1], first)
    shares = [float(reached.double().mean()) for reached in (first, both)]
    assert shares == pytest.approx([count / TOKENS for count in distances_reached(steps, TOKENS)])
    assert functions.reads_through(found(mixed("mha"))[1]).all()


def test_chosen_channels_are_spread_over_all() -> None:
    assert functions.spread(64, 3).tolist() == [0, 32, 63]
    assert functions.spread(2, 9).tolist() == [0, 1]
    call = mixed("csp")
    chosen, maps = call.maps(3) or pytest.fail("no maps")
    assert_close(maps, found(call)[1][chosen])


@pytest.fixture(scope="module")
def study() -> Callable[[], Study]:
    """Untrained models of digits, of which the analyses need no checkpoint."""
    config = small_config("seed=3", "data.limit_train=32", "task.pool=cls")
    names = ("mha", "csp", "random_permutation", "fnet")

    def make() -> Study:
        sources = [
            Source(name, name, plan_of(config | {"attention": load_option("attention", name)})) for name in names
        ]
        return Study([Group("digits", "digits", sources, None)], ("init",))

    return make


@pytest.mark.parametrize(
    ("names", "known"),
    [
        (("csp_sort_only", "csp", "csp_sort_only"), 3),
        (("csp_sort_only", "fnet", "csp_sort_only"), 1),  # a layer without maps
        (("csp_sort_only", "luna", "csp_sort_only"), 1),  # which does not call mix
        (("csp_sort_only", "csp", "fnet"), 2),
    ],
)
def test_pairs_reached_end_at_a_layer_without_maps(names: tuple[str, ...], known: int) -> None:
    torch.manual_seed(0)
    sizes = {"depth": len(names), "dim": CHANNELS, "num_heads": HEADS, "mlp_dim": CHANNELS}
    nodes = [check_node(load_option("attention", name), "attention") for name in names]
    encoder = load_option("encoder", "tiny") | sizes
    model = nn.Module()
    model.encoder = build_encoder(encoder, load_option("block", "transformer"), nodes, TOKENS).eval()
    model.forward = model.encoder.forward
    model.num_tokens = lambda: TOKENS
    group: Any = SimpleNamespace(batches=lambda *_: [torch.randn(2, TOKENS, CHANNELS)])
    opened: Any = SimpleNamespace(model=model, source=SimpleNamespace(label="x"), checkpoint="init")
    reached = {key[:2]: values for key, values in ShowMaps(samples=2).measured(group, opened, {}).items()}
    assert [layer for layer, name in reached if name == "reach"] == list(range(known))
    assert ((len(names) - 1, "reach_of_all") in reached) == (known == len(names))


def one(table: pd.DataFrame, **wanted: Any) -> float:
    rows = table.loc[(table[list(wanted)] == pd.Series(wanted)).all(axis=1), "mean"]
    assert len(rows) >= 1
    return float(rows.mean())


def test_maps_include_controls_and_name_attentions_without_maps(study: Callable[[], Study]) -> None:
    small_study = study()
    result = ShowMaps(samples=3, channels=4).findings(small_study)
    table = result.table
    assert set(table["attention"]) == {"mha", "csp", "random_permutation", f"{SHIFT} (untrained)"}
    assert [reason for name, reason in small_study.left_out.items() if "fnet" in name]
    for attention in ("csp", "random_permutation", f"{SHIFT} (untrained)"):
        for measure, expected in {"row_error": 0.0, "column_error": 0.0, "rank": 1.0, "tokens_read": 1.0}.items():
            assert one(table, attention=attention, measure=measure) == pytest.approx(expected, abs=1e-9)
    assert one(table, attention="random_permutation", measure="overlap") == 1.0
    assert 0 < one(table, attention="csp", measure="overlap") < 1
    assert one(table, attention="csp", measure="grid_distance_mean") > 1, "CLS has no place in the grid"
    shares = table[(table["measure"] == "distance_share") & (table["attention"] == "csp") & (table["layer"] == 1)]
    assert shares["index"].tolist() == list(range(1, DISTANCE_BINS + 1)) and shares["mean"].sum() == pytest.approx(1)
    assert "reach" not in set(table.loc[table["attention"] == "csp", "measure"])  # it needs all channels
    whole = ShowMaps(samples=2).findings(study()).table
    reach = [one(whole, attention="csp", measure="reach", layer=layer) for layer in (1, 2)]
    assert 0 < reach[0] <= reach[1]
    assert {chart.name for chart in result.charts} == {"maps_digits", "maps_digits_distances"}
    assert result.summary[0].row_count == 4


def test_distances_on_a_grid_follow_the_patches_in_any_token_order() -> None:
    grid, order = (2, 3), (5, 0, 3, 1, 4, 2)
    row_by_row = functions.apart_on_grid(grid)
    assert row_by_row[0].tolist() == pytest.approx([0, 1, 2, 1, 2**0.5, 5**0.5])
    ordered = functions.apart_on_grid(grid, order)
    for i in range(6):
        for j in range(6):
            assert ordered[i, j] == row_by_row[order[i], order[j]]
