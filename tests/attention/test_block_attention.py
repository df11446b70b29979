"""Attentions over windows and blocks: their limits, brute force over ragged batches, the contract at small blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from sliceformer_lab.attention import Attention, build_layer
from sliceformer_lab.attention.contract import (
    CHECKS,
    HEADS,
    check_cost_is_linear_unless_declared,
    check_implied_map_gives_the_mix,
    make_spec,
    padded,
    tokens,
)
from sliceformer_lab.attention.mha import MHA
from sliceformer_lab.config.compose import load_option
from sliceformer_lab.config.schema import ConfigError

N = 23
LENGTHS = (N, 14, 5, 1)
SMALL: dict[str, dict[str, Any]] = {  # blocks and windows far below the tests' length
    "longformer": {"back": 2, "ahead": 1},
    "longformer_cls": {"back": 2, "ahead": 1},
    "bigbird": {"block_size": 2, "num_random": 1},
    "sparse": {"block_size": 4, "num_summary": 1},
    "reformer": {"chunk_length": 4, "num_hashes": 2, "num_buckets": 4},
    "sinkhorn": {"block_size": 4},
}
NOT_SMALL = (
    check_cost_is_linear_unless_declared,  # sparse has N / b keys for every token
    check_implied_map_gives_the_mix,  # done by brute force
)


def build(name: str, max_len: int | None = N, **options: Any) -> Attention:
    torch.manual_seed(0)
    return build_layer(load_option("attention", name) | options, make_spec(max_len=max_len)).eval()


def mha_like(layer: Attention) -> MHA:
    """Softmax attention with the projections of `layer`."""
    mha = MHA(layer.spec).eval()
    mha.load_state_dict(layer.state_dict(), strict=False)
    return mha


def heads(x: Tensor) -> Tensor:
    """(1, N, H*D) -> (H, N, D)."""
    return x[0].unflatten(-1, (HEADS, -1)).transpose(0, 1)


def weights(layer: Attention, x: Tensor, allowed: Tensor) -> Tensor:
    """Softmax attention of one sample x (1, N, C) where allowed (H or 1, N, N). -> (H, N, N)."""
    _, q, k = (heads(t) for t in layer.project(x) if t is not None)
    return (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~allowed, -torch.inf).softmax(-1)


def output(layer: Attention, x: Tensor, maps: Tensor) -> Tensor:
    """Weights (H, N, N) applied to one sample x (1, N, C). -> (N, C)."""
    out: Tensor = layer.out((maps @ heads(layer.value(x))).transpose(0, 1).flatten(1))
    return out


def window(num_tokens: int, back: int, ahead: int) -> Tensor:
    return torch.tensor([[[-back <= j - i <= ahead for j in range(num_tokens)] for i in range(num_tokens)]])


def fixed(num_tokens: int, size: int, summary: int, *, causal: bool = False, cls_open: bool = False) -> Tensor:
    def sees(i: int, j: int) -> bool:
        pattern = i // size == j // size or j % size == 0 or j % size >= size - summary
        return (pattern and (j <= i or not causal)) or (cls_open and i == 0)

    return torch.tensor([[[sees(i, j) for j in range(num_tokens)] for i in range(num_tokens)]])


def big_bird(layer: Attention, num_tokens: int, size: int) -> Tensor:
    random = layer.state_dict()["random_blocks"].tolist()
    ends = {0, (N - 1) // size}

    def sees(head: int, i: int, j: int) -> bool:
        return bool({i, j} & ends) or abs(i - j) <= 1 or j in random[head][i]

    span = range(num_tokens)
    return torch.tensor([[[sees(h, i // size, j // size) for j in span] for i in span] for h in range(HEADS)])


def hashed(layer: Attention, x: Tensor, size: int, *, wrap: bool = False, same_bucket: bool = False) -> Tensor:
    """The weights of Reformer for one sample x (1, N, C), pair by pair: (H, N, N)."""
    q, num_tokens = heads(layer.project(x)[1]), x.shape[1]
    maps, totals = [], []
    for rotation in layer.state_dict()["rotations"]:
        rotated = q @ rotation
        buckets = torch.cat([rotated, -rotated], dim=-1).argmax(dim=-1).tolist()
        scores = torch.full((HEADS, num_tokens, num_tokens), -torch.inf)
        for h in range(HEADS):
            order = sorted(range(num_tokens), key=lambda i: (buckets[h][i], i))
            chunk = {token: place // size for place, token in enumerate(order)}
            for i in range(num_tokens):
                for j in range(num_tokens):
                    near = chunk[i] - chunk[j] in (0, 1) or (wrap and (chunk[i], chunk[j]) == (0, (N - 1) // size))
                    if near and (not same_bucket or buckets[h][i] == buckets[h][j]):
                        score = q[h, i] @ (q[h, j] / q[h, j].norm()) / q.shape[-1] ** 0.5
                        scores[h, i, j] = -1e5 if i == j else score
        maps.append(scores.softmax(-1))
        totals.append(scores.logsumexp(-1, keepdim=True))
    return (torch.stack(totals).softmax(0) * torch.stack(maps)).sum(0)


def sinkhorn(layer: Attention, x: Tensor, size: int, temperature: float) -> Tensor:
    """The weights of the Sinkhorn Transformer for one sample x (1, N, C), query by query: (H, N, N)."""
    _, q, k = (heads(t) for t in layer.project(x) if t is not None)
    blocks = torch.arange(x.shape[1]).split(size)
    maps = torch.zeros(HEADS, x.shape[1], x.shape[1])
    for h in range(HEADS):
        sums = torch.stack([k[h, block].sum(0) for block in blocks])
        mixture = (layer.sort(sums)[:, : len(blocks)] / temperature).exp()
        for _ in range(8):
            mixture = mixture / mixture.sum(0)
            mixture = mixture / mixture.sum(1, keepdim=True)
        for i in range(x.shape[1]):
            own = i // size
            moved = [  # for each place in a block, the share of each token in what comes to this block
                torch.stack([mixture[own, j // size] * (j % size == place) for j in range(x.shape[1])])
                for place in range(min(size, x.shape[1]))
            ]
            shares = torch.cat([torch.eye(x.shape[1])[blocks[own]], torch.stack(moved)])
            maps[h, i] = (shares @ k[h] @ q[h, i] / q.shape[-1] ** 0.5).softmax(0) @ shares
    return maps


def case_id(value: object) -> str:
    return "" if callable(value) else str(value)  # a function prints its address, which xdist cannot match


BRUTE: list[tuple[str, dict[str, Any], Callable[[Attention, Tensor], Tensor]]] = [
    ("longformer", {"back": 2, "ahead": 1}, lambda layer, x: weights(layer, x, window(x.shape[1], 2, 1))),
    ("longformer", {"back": 0, "ahead": 40}, lambda layer, x: weights(layer, x, window(x.shape[1], 0, 40))),
    ("longformer", {"back": 0, "ahead": 0}, lambda layer, x: weights(layer, x, window(x.shape[1], 0, 0))),
    ("sparse", {"block_size": 4, "num_summary": 1}, lambda layer, x: weights(layer, x, fixed(x.shape[1], 4, 1))),
    (
        "sparse",
        {"block_size": 5, "num_summary": 0, "causal": True, "cls_open": True},
        lambda layer, x: weights(layer, x, fixed(x.shape[1], 5, 0, causal=True, cls_open=True)),
    ),
    (
        "bigbird",
        {"block_size": 2, "num_random": 2},
        lambda layer, x: weights(layer, x, big_bird(layer, x.shape[1], 2)),
    ),
    (
        "bigbird",
        {"block_size": 3, "num_random": 0},
        lambda layer, x: weights(layer, x, big_bird(layer, x.shape[1], 3)),
    ),
    (
        "reformer",
        {"chunk_length": 5, "num_hashes": 2, "num_buckets": 4, "same_bucket_only": True},
        lambda layer, x: hashed(layer, x, 5, same_bucket=True),
    ),
    (
        "reformer",
        {"chunk_length": 6, "num_hashes": 2, "wrap": True},
        lambda layer, x: hashed(layer, x, 6, wrap=True),
    ),
    ("reformer", {"chunk_length": 100, "wrap": True}, lambda layer, x: hashed(layer, x, 100)),
    ("sinkhorn", {"block_size": 4}, lambda layer, x: sinkhorn(layer, x, 4, 0.75)),
    ("sinkhorn", {"block_size": 22, "temperature": 2.0}, lambda layer, x: sinkhorn(layer, x, 22, 2.0)),
]


@pytest.mark.parametrize(("name", "options", "brute_force"), BRUTE, ids=case_id)
def test_equals_brute_force_on_ragged_batches(
    name: str, options: dict[str, Any], brute_force: Callable[[Attention, Tensor], Tensor]
) -> None:
    layer = build(name, **options)
    samples = [tokens(n, batch=1, seed=n)[0] for n in LENGTHS]
    x, padding = padded(samples, N)
    out = layer(x, padding)
    for row, sample in zip(out, samples, strict=True):
        maps = brute_force(layer, sample[None])
        expected = output(layer, sample[None], maps)
        assert_close(row[: len(sample)], expected)
        assert_close(layer(sample[None])[0], expected)
        assert_close(layer.implied_map(sample[None]), maps[None])


WHOLE = [
    ("longformer", {"back": N, "ahead": N}),
    ("longformer", {"back": 10**4, "ahead": N - 1}),
    ("bigbird", {"block_size": 4, "num_random": 2}),
    ("bigbird", {"block_size": 100}),
    ("sparse", {"block_size": N}),
    ("sparse", {"block_size": 1000}),
    ("sinkhorn", {"block_size": N}),  # its own and the sorted keys are the same
    ("sinkhorn", {"block_size": 1000}),
]


@pytest.mark.parametrize(("name", "options"), WHOLE, ids=str)
def test_equals_mha_where_the_pattern_covers_everything(name: str, options: dict[str, Any]) -> None:
    layer = build(name, **options)
    x, padding = padded([tokens(n, batch=1, seed=n)[0] for n in LENGTHS], N)
    assert not layer.order_sensitive
    assert_close(layer(x, padding)[padding.mask], mha_like(layer)(x, padding)[padding.mask])


def test_global_tokens_attend_to_all_through_their_own_projections() -> None:
    layer, x = build("longformer_cls", back=1, ahead=1, num_global=2), tokens(N)
    with torch.no_grad():
        for name in ("query", "key", "value"):
            getattr(layer, f"global_{name}").load_state_dict(getattr(layer, name).state_dict())
    expected = mha_like(layer)(x)[:, :2]
    assert_close(layer(x)[:, :2], expected)
    torch.nn.init.zeros_(layer.global_value.weight)
    torch.nn.init.zeros_(layer.global_value.bias)
    assert_close(layer(x)[:, :2], layer.out.bias.expand(2, 2, -1))


def test_global_tokens_may_be_more_than_there_are() -> None:
    assert build("longformer_cls", num_global=5)(tokens(3)).isfinite().all()


def test_reformer_with_one_bucket_and_one_chunk_is_attention_to_all_others() -> None:
    layer, x = build("reformer", chunk_length=N, num_hashes=2, same_bucket_only=True), tokens(N, batch=1)
    with torch.no_grad():
        layer.rotations.zero_()  # every token falls into the first bucket
    q = heads(layer.project(x)[1])
    scores = q @ F.normalize(q, dim=-1).mT / q.shape[-1] ** 0.5
    others = scores.masked_fill(torch.eye(N, dtype=torch.bool), -torch.inf).softmax(-1)
    assert_close(layer(x)[0], output(layer, x, others))


def test_sorting_of_real_blocks_is_doubly_stochastic() -> None:
    layer = build("sinkhorn", block_size=4, num_iters=50)
    keys, real = torch.randn(2, HEADS, 6, 4, 4), torch.tensor([[[True] * 6], [[True] * 2 + [False] * 4]])
    mixture = layer.sorting(keys, real)
    assert_close(mixture.sum(dim=-1), torch.ones(2, HEADS, 6))
    assert_close(mixture.sum(dim=-2), torch.ones(2, HEADS, 6), atol=1e-4, rtol=0)
    assert_close(mixture[1, :, 2:], torch.eye(6)[2:].expand(HEADS, -1, -1))


def test_random_blocks_come_from_the_seed_and_stay() -> None:
    drawn = [build("bigbird", block_size=2, num_random=3).random_blocks for _ in range(2)]
    assert torch.equal(*drawn)
    torch.manual_seed(1)
    other = build_layer(load_option("attention", "bigbird") | {"block_size": 2}, make_spec(max_len=N))
    assert not torch.equal(drawn[0], other.random_blocks)
    assert "random_blocks" in other.state_dict()


BAD = [  # sizes below their limits: test_attention_bad_input
    ("reformer", {"num_buckets": 5}, "odd"),
    ("sparse", {"block_size": 4, "num_summary": 4}, "num_summary"),
    ("reformer", {"wrap": True}, "set max_len"),
]


@pytest.mark.parametrize(("name", "options", "message"), BAD, ids=str)
def test_bad_options_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(name, max_len=None if "max_len" in message else N, **options)


@pytest.mark.parametrize("name", SMALL)
def test_keeps_the_contract_with_small_blocks(name: str) -> None:
    options = load_option("attention", name) | SMALL[name]
    for check in CHECKS:
        if check not in NOT_SMALL:
            check(lambda spec: build_layer(options, replace(spec, index=1)))
