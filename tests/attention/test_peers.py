"""Baselines with weights of their own against loops over tokens, their limits, and what their options refuse."""

from __future__ import annotations

from collections.abc import Callable
from math import cos, pi, sqrt
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from sliceformer_lab.attention import Attention
from sliceformer_lab.attention.contract import (
    CHECKS,
    DIM,
    HEADS,
    MAX_LEN,
    check_mix_is_all_there_is_without_projections,
    make_spec,
    padded,
    tokens,
)
from sliceformer_lab.attention.cosformer import Cosformer
from sliceformer_lab.attention.linear import Linear
from sliceformer_lab.attention.linformer import Linformer
from sliceformer_lab.attention.local import Local
from sliceformer_lab.attention.mha import MHA
from sliceformer_lab.attention.performer import Performer
from sliceformer_lab.attention.sinkformer import Sinkformer
from sliceformer_lab.attention.synthesizer import Synthesizer

LENGTHS = (1, 4, 9, 13)
Kind = type[Attention]
Weigh = Callable[[Any, Tensor, Tensor, Tensor, int], Tensor]


def normalised(weights: Tensor) -> Tensor:
    return weights / weights.sum(1, keepdim=True)


def pairs(q: Tensor, k: Tensor, weigh: Callable[[int, int], Tensor | float]) -> Tensor:
    """The matrix (n, n) of weigh(i, j)."""
    return torch.tensor([[float(weigh(i, j)) for j in range(len(k))] for i in range(len(q))])


def dots(q: Tensor, k: Tensor) -> Tensor:
    return pairs(q, k, lambda i, j: q[i] @ k[j] / sqrt(len(q[i])))


def by_linear(layer: Linear, x: Tensor, q: Tensor, k: Tensor, head: int) -> Tensor:
    phi = [[torch.where(t > 0, t + 1, t.exp()) for t in side] for side in (q, k)]
    return normalised(pairs(q, k, lambda i, j: phi[0][i] @ phi[1][j]))


def by_cosformer(layer: Cosformer, x: Tensor, q: Tensor, k: Tensor, head: int) -> Tensor:
    weights = pairs(q, k, lambda i, j: q[i].clamp(0) @ k[j].clamp(0) * cos(pi * (i - j) / (2 * MAX_LEN)))
    return weights / weights.sum(1, keepdim=True).clamp(1e-6)


def by_performer(layer: Performer, x: Tensor, q: Tensor, k: Tensor, head: int) -> Tensor:
    q, k = q / q.shape[1] ** 0.25, k / k.shape[1] ** 0.25
    highest_key = max(direction @ token for direction in layer.directions for token in k)

    def phi(token: Tensor, highest: Tensor | None = None) -> Tensor:
        products = torch.stack([direction @ token for direction in layer.directions])
        if layer.kernel == "relu":
            return products.clamp(0) + 1e-3
        return (products - token @ token / 2 - (products.max() if highest is None else highest)).exp() + 1e-4

    return normalised(pairs(q, k, lambda i, j: phi(q[i]) @ phi(k[j], highest_key)))


def by_linformer(layer: Linformer, x: Tensor, q: Tensor, k: Tensor, head: int) -> Tensor:
    of_values = layer.key_slots if layer.value_slots is None else layer.value_slots
    slots = [sum(row[j] * k[j] for j in range(len(k))) for row in layer.key_slots]
    return dots(q, torch.stack(slots)).softmax(1) @ of_values[:, : len(k)]


def by_local(layer: Local, x: Tensor, q: Tensor, k: Tensor, head: int) -> Tensor:
    size, num_blocks = layer.block_size, MAX_LEN // layer.block_size + 1

    def together(i: int, j: int) -> bool:
        return i // size == j // size if layer.stride is None else i % num_blocks == j % num_blocks

    return normalised(dots(q, k).exp() * pairs(q, k, together))


def by_sinkformer(layer: Sinkformer, x: Tensor, q: Tensor, k: Tensor, head: int) -> Tensor:
    weights = dots(q, k).exp()
    for step in range(layer.n_it):
        weights = weights / weights.sum(1 - step % 2, keepdim=True)
    return weights


def by_synthesizer(layer: Synthesizer, x: Tensor, q: Tensor, k: Tensor, head: int) -> Tensor:
    if layer.mode == "random":
        scores = layer.scores[head]
    elif layer.mode == "factorized_random":
        scores = layer.left[head] @ layer.right[head]
    else:
        rank = layer.position_keys.shape[2]
        own = slice(head * rank, (head + 1) * rank)
        hidden = F.relu(x @ layer.hidden.weight[own].T + layer.hidden.bias[own])
        scores = hidden @ layer.position_keys[head].T + layer.position_bias[head]
    scores = scores[: len(x), : len(x)]
    return (scores if layer.query is None else scores + dots(q, k)).softmax(1)


CASES: list[tuple[Kind, dict[str, Any], Weigh]] = [
    (Linear, {}, by_linear),
    (Cosformer, {}, by_cosformer),
    (Performer, {"num_features": 10}, by_performer),
    (Performer, {"num_features": 10, "kernel": "relu"}, by_performer),
    (Linformer, {"num_slots": 4}, by_linformer),
    (Linformer, {"num_slots": 4, "share_kv": False}, by_linformer),
    (Local, {"block_size": 4}, by_local),
    (Local, {"block_size": 5}, by_local),
    (Local, {"block_size": 3, "block_layout": "strided_lra"}, by_local),
    (Sinkformer, {}, by_sinkformer),
    (Sinkformer, {"n_it": 4}, by_sinkformer),
    *(
        (Synthesizer, {"mode": mode, "mix_dot_product": mixed, "rank": 3}, by_synthesizer)
        for mode in ("random", "factorized_random", "dense")
        for mixed in (True, False)
    ),
]
NAMES = ["-".join([kind.__name__.lower(), *(f"{k}={v}" for k, v in options.items())]) for kind, options, _ in CASES]


def make(kind: Kind, options: dict[str, Any] | None = None, **spec: Any) -> Any:
    return kind(make_spec(**spec), **(options or {})).eval()


def as_mha(layer: Attention) -> MHA:
    """Softmax attention with the projections of `layer`."""
    mha = MHA(make_spec()).eval()
    left_out = mha.load_state_dict(layer.state_dict(), strict=False)
    assert not left_out.missing_keys
    return mha


def ragged() -> tuple[list[Tensor], Tensor, Any]:
    """Samples (n, C), alone and in one padded batch."""
    samples = [tokens(n, batch=1, seed=n)[0] for n in LENGTHS]
    return samples, *padded(samples, MAX_LEN)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@torch.no_grad()
@pytest.mark.parametrize(("kind", "options", "weigh"), CASES, ids=NAMES)
def test_equals_a_loop_over_samples_heads_and_tokens(kind: Kind, options: dict[str, Any], weigh: Weigh) -> None:
    layer = make(kind, options)
    samples, x, padding = ragged()
    outputs, maps = layer(x, padding), layer.implied_map(x, padding)
    for row, sample in enumerate(samples):
        n = len(sample)
        q, k, v = (
            torch.zeros(HEADS, n, DIM) if p is None else p(sample).unflatten(-1, (HEADS, -1)).transpose(0, 1)
            for p in (layer.query, layer.key, layer.value)
        )
        weights = torch.stack([weigh(layer, sample, q[head], k[head], head) for head in range(HEADS)])
        expected = layer.out(torch.cat(list(weights @ v), dim=1))
        assert_close(outputs[row, :n], expected, rtol=1e-4, atol=1e-5)
        assert_close(layer(sample[None])[0], expected, rtol=1e-4, atol=1e-5)
        assert_close(maps[row, :, :n, :n], weights, rtol=1e-4, atol=1e-5)
        assert not maps[row, :, :n, n:].any()


@pytest.mark.parametrize(("kind", "options", "weigh"), CASES, ids=NAMES)
def test_every_option_keeps_the_contract(kind: Kind, options: dict[str, Any], weigh: Weigh) -> None:
    for check in CHECKS:
        if check is not check_mix_is_all_there_is_without_projections or options.get("mode") != "dense":
            check(lambda spec: kind(spec, **options))


@torch.no_grad()
def test_linformer_with_identity_projections_is_softmax_attention() -> None:
    layer, x = make(Linformer, {"num_slots": MAX_LEN, "share_kv": False}), tokens(MAX_LEN)
    layer.key_slots.copy_(torch.eye(MAX_LEN))
    layer.value_slots.copy_(torch.eye(MAX_LEN))
    assert_close(layer(x), as_mha(layer)(x))


@pytest.mark.parametrize("block_size", [MAX_LEN, 1000])
def test_local_with_one_block_is_softmax_attention(block_size: int) -> None:
    layer, (_, x, padding) = make(Local, {"block_size": block_size}), ragged()
    assert_close(layer(x), as_mha(layer)(x), atol=1e-4, rtol=1e-4)
    assert_close(layer(x, padding)[padding.mask], as_mha(layer)(x, padding)[padding.mask])


def test_local_with_blocks_of_one_token_keeps_every_value() -> None:
    layer, x = make(Local, {"block_size": 1}), tokens(MAX_LEN)
    assert_close(layer(x), layer.out(layer.value(x)))
    assert not layer.order_sensitive


def test_local_keeps_blocks_apart() -> None:
    layer, x = make(Local, {"block_size": 4}), tokens(10)
    changed = x.clone()
    changed[:, 4:8] += 1
    same = (layer(x) == layer(changed)).all(dim=2)
    assert torch.equal(same[0], torch.tensor([True] * 4 + [False] * 4 + [True] * 2))


def test_sinkformer_of_one_normalisation_is_softmax_attention() -> None:
    layer, (_, x, padding) = make(Sinkformer, {"n_it": 1}), ragged()
    real = padding.mask
    assert_close(layer(x, padding)[real], as_mha(layer)(x, padding)[real])


def test_sinkformer_converges_to_doubly_stochastic_weights_of_the_real_tokens() -> None:
    layer, (_, x, padding) = make(Sinkformer, {"n_it": 201}), ragged()
    maps = layer.implied_map(x, padding)
    real = padding.mask[:, None].expand(-1, HEADS, -1).float()
    assert_close(maps.sum(dim=3), real)
    assert_close(maps.sum(dim=2), real)


def test_sinkformer_bears_scores_that_exp_does_not() -> None:
    layer = make(Sinkformer, {"n_it": 5})
    maps = layer.implied_map(100 * tokens(MAX_LEN))
    assert_close(maps.sum(dim=3), torch.ones(2, HEADS, MAX_LEN))


@pytest.mark.parametrize(
    ("kind", "options", "weigh"), [case for case in CASES if case[0] in (Linformer, Local, Sinkformer, Synthesizer)]
)
def test_dropout_acts_on_weights_in_training_only(kind: Kind, options: dict[str, Any], weigh: Weigh) -> None:
    layer, x = make(kind, options, attention_dropout=0.5), tokens(MAX_LEN)
    assert torch.equal(layer(x), layer(x))
    maps = layer.implied_map(x)
    assert not torch.equal(layer.train()(x), layer(x))
    assert torch.equal(layer.implied_map(x), maps)


@pytest.mark.parametrize("kind", [Cosformer, Linformer, Synthesizer])
def test_learned_positions_need_max_len_and_end_there(kind: Kind) -> None:
    with pytest.raises(ValueError, match="max_len"):
        make(kind, max_len=None)
    with pytest.raises(ValueError, match=f"at most {MAX_LEN} tokens, got {MAX_LEN + 1}"):
        make(kind)(tokens(MAX_LEN + 1))


@pytest.mark.parametrize("kind", [Linear, Cosformer, Performer, Linformer, Local, Sinkformer, Synthesizer])
def test_mix_without_queries_is_refused(kind: Kind) -> None:
    with pytest.raises(ValueError, match=f"{kind.__name__.lower()}.*" + r"mix\(v, q, k\)"):
        make(kind).mix(tokens(MAX_LEN))


def test_synthesizer_refuses_what_it_could_only_ignore() -> None:
    with pytest.raises(ValueError, match="mode=dense"):
        make(Synthesizer, {"mode": "dense"}, project=False)
    with pytest.raises(ValueError, match="mix_dot_product=false"):
        make(Synthesizer, {"mix_dot_product": False}, rope=True)
    with pytest.raises(ValueError, match=r"mix\(v, q\)"):
        make(Synthesizer, {"mode": "dense", "mix_dot_product": False}).mix(tokens(MAX_LEN))


def test_synthesizer_without_dot_product_has_no_queries_and_keys() -> None:
    names = dict(make(Synthesizer, {"mix_dot_product": False}).named_parameters())
    assert set(names) == {"scores", "value.weight", "value.bias", "out.weight", "out.bias"}
