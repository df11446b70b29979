"""Attentions over windows and blocks: their limits, and brute force over ragged batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from sliceformer_lab.attention import Attention, build_layer
from sliceformer_lab.attention.contract import HEADS, make_spec, padded, tokens
from sliceformer_lab.attention.mha import MHA
from sliceformer_lab.config.compose import load_option

N = 23
LENGTHS = (N, 14, 5, 1)


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


BRUTE: list[tuple[str, dict[str, Any], Callable[[Attention, Tensor], Tensor]]] = [  # what no golden file has
    ("longformer", {"back": 2, "ahead": 1}, lambda layer, x: weights(layer, x, window(x.shape[1], 2, 1))),
    ("longformer", {"back": 0, "ahead": 40}, lambda layer, x: weights(layer, x, window(x.shape[1], 0, 40))),
    ("longformer", {"back": 0, "ahead": 0}, lambda layer, x: weights(layer, x, window(x.shape[1], 0, 0))),
    ("sinkhorn", {"block_size": 4}, lambda layer, x: sinkhorn(layer, x, 4, 0.75)),
    ("sinkhorn", {"block_size": 11, "temperature": 2.0}, lambda layer, x: sinkhorn(layer, x, 11, 2.0)),
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
    ("local", {"block_size": N}),
    ("local", {"block_size": 1000}),
    ("sinkhorn", {"block_size": N}),  # its own and the sorted keys are the same
    ("sinkhorn", {"block_size": 1000}),
]


@pytest.mark.parametrize(("name", "options"), WHOLE, ids=str)
def test_equals_mha_where_the_pattern_covers_everything(name: str, options: dict[str, Any]) -> None:
    layer = build(name, **options)
    x, padding = padded([tokens(n, batch=1, seed=n)[0] for n in LENGTHS], N)
    assert not layer.order_sensitive
    assert_close(layer(x, padding)[padding.mask], mha_like(layer)(x, padding)[padding.mask])


def test_global_tokens_may_be_more_than_there_are() -> None:
    assert build("longformer_cls", num_global=5)(tokens(3)).isfinite().all()


def test_blocks_of_one_token_keep_every_value() -> None:
    layer, x = build("local", block_size=1), tokens(N)
    assert_close(layer(x), layer.out(layer.value(x)))
    assert not layer.order_sensitive
