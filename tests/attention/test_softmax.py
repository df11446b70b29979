"""Dropout on a CPU, and softmax attention with it by blocks, against the formula with the same random weights."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from support.devices import GPU
from torch import Tensor
from torch.nn.attention import varlen
from torch.testing import assert_close

from sliceformer_lab.attention import softmax
from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.dropout import Dropout, drop
from sliceformer_lab.attention.softmax import attend
from sliceformer_lab.batch import Padding
from sliceformer_lab.commands.benchmark.peers import FusedSoftmax, PackedSoftmax
from sliceformer_lab.measures.call_cost import saved_bytes

B, H, N, D = 3, 2, 13, 4
RATE = 0.3
Mask = Callable[[], Tensor | None]

MASKS: dict[str, tuple[Mask, bool]] = {
    "no mask": (lambda: None, False),
    "causal": (lambda: None, True),
    "padding": (lambda: torch.arange(N) < torch.tensor([5, N, 1])[:, None, None, None], False),
    "bias": (lambda: torch.randn(B, H, N, N, dtype=torch.float64).requires_grad_(), False),
}


def projected(*shape: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Queries, keys and values as heads are split: (B, H, N, D), not contiguous."""
    batch, heads, tokens, width = shape or (B, H, N, D)
    return [torch.randn(batch, tokens, heads, width, dtype=dtype).transpose(1, 2).requires_grad_() for _ in range(3)]


def dropped_weights(q: Tensor, k: Tensor, mask: Tensor | None, causal: bool, dropout: float = RATE) -> Tensor:
    """What a call with seed 1 multiplies values with: (B, H, N, N)."""
    torch.manual_seed(1)
    unit = torch.eye(k.shape[2], dtype=q.dtype).expand(*k.shape[:2], -1, -1)
    return attend(q, k, unit, mask, dropout=dropout, causal=causal)


def dense_weights(q: Tensor, k: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    scores = torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(D)
    if causal:
        scores = scores.masked_fill(torch.ones(N, N, dtype=torch.bool).triu(1), -torch.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    return scores.softmax(-1)


@pytest.mark.parametrize("block_weights", [1, 3 * N, 2 * N * N, H * N * N, 10**6])
@pytest.mark.parametrize("case", MASKS)
def test_values_and_gradients_are_those_of_the_dense_formula_with_the_same_weights_dropped(
    case: str, block_weights: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(softmax, "BLOCK_BYTES", 8 * block_weights)
    (make_mask, causal), (q, k, v) = MASKS[case], projected()
    mask = make_mask()
    inputs = [q, k, v, mask] if mask is not None and mask.requires_grad else [q, k, v]
    kept = dropped_weights(q, k, mask, causal).detach() != 0
    expected = (dense_weights(q, k, mask, causal) * kept / (1 - RATE)) @ v
    torch.manual_seed(1)
    found = attend(q, k, v, mask, dropout=RATE, causal=causal)
    assert_close(found, expected, rtol=1e-4, atol=0)  # the rate is a multiple of 2^-16
    direction = torch.randn_like(found)
    for one, other in zip(*(torch.autograd.grad(out, inputs, direction) for out in (found, expected)), strict=True):
        assert_close(one, other, rtol=1e-4, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_mean_over_seeds_is_the_softmax_and_every_weight_is_dropped_at_the_rate(dtype: torch.dtype) -> None:
    q, k, _ = (x.detach() for x in projected(1, 2, 8, D, dtype=dtype))
    unit = torch.eye(8, dtype=dtype).expand(1, 2, -1, -1)
    draws = torch.stack([attend(q, k, unit, dropout=RATE) for _ in range(2000)]).double()
    weights = (q @ k.mT / math.sqrt(D)).softmax(-1).double()
    assert_close(draws.mean(0), weights, rtol=0.08, atol=0)
    kept = (draws != 0).double()
    assert (kept.mean(0) - (1 - RATE)).abs().max() < 5 * math.sqrt(RATE * (1 - RATE) / 2000)
    correlations = kept.flatten(1).T.corrcoef().fill_diagonal_(0)
    assert correlations.abs().max() < 5 / math.sqrt(2000)


def test_dropped_weights_repeat_with_the_seed_only() -> None:
    q, k, v = projected()
    first, second, third = ((torch.manual_seed(number), attend(q, k, v, dropout=RATE))[1] for number in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def test_a_backward_pass_draws_the_numbers_of_its_forward_pass_again() -> None:
    q, k, v = projected()
    torch.manual_seed(1)
    out = attend(q, k, v, dropout=RATE)
    attend(q, k, v, dropout=RATE)
    gradient = torch.autograd.grad(out.sum(), v)[0]
    assert_close(gradient, dropped_weights(q, k, None, False).mT.sum(-1, keepdim=True).expand_as(v))


def test_memory_between_the_passes_grows_with_the_length_and_not_with_its_square() -> None:
    def saved(tokens: int) -> int:
        q, k, v = projected(1, 1, tokens, D, dtype=torch.float32)
        return saved_bytes(lambda: attend(q, k, v, dropout=RATE), [])

    assert saved(512) == 2 * saved(256)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dropout", [0.0, RATE])
def test_bfloat16_differs_by_its_rounding_only(causal: bool, dropout: float) -> None:
    q, k, v = (x.bfloat16() for x in projected())
    found: list[Tensor] = []
    exact: list[Tensor] = []
    for results, dtype in ((found, torch.bfloat16), (exact, torch.float64)):
        inputs = [x.detach().to(dtype).requires_grad_() for x in (q, k, v)]
        torch.manual_seed(1)
        out = attend(*inputs, dropout=dropout, causal=causal)
        results += [out, *torch.autograd.grad(out.sum(), inputs)]
    for one, other in zip(found, exact, strict=True):
        assert one.dtype == torch.bfloat16
        assert_close(one.double(), other, rtol=0.05, atol=0.05)


def test_under_autocast_wider_queries_meet_values_of_16_bits() -> None:
    q, k, v = (x.float() for x in projected())
    with torch.autocast("cpu", torch.bfloat16):
        assert attend(q, k, v.bfloat16(), dropout=RATE).dtype == torch.bfloat16
        assert attend(q, k, v.bfloat16()).dtype == torch.bfloat16


SHAPE = (50, 40, 50)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_numbers_are_dropped_at_the_rate_and_the_others_scaled_so_that_the_mean_stays(dtype: torch.dtype) -> None:
    x = torch.full(SHAPE, 2.0, dtype=dtype)
    dropped = drop(x, 0.1)
    assert dropped.dtype == dtype
    assert torch.equal(x, torch.full(SHAPE, 2.0, dtype=dtype))
    kept = dropped != 0
    assert abs(kept.double().mean() - 0.9) < 5 * (0.1 * 0.9 / x.numel()) ** 0.5
    assert_close(dropped[kept].double().mean().item(), 2 / 0.9, rtol=1e-2, atol=0)
    for axis in range(3):  # no row or column is dropped more than another, and neighbours are dropped independently
        others = [other for other in range(3) if other != axis]
        assert (kept.double().mean(others) - 0.9).abs().max() < 0.05
        first, second = (kept.narrow(axis, start, SHAPE[axis] - 1).double().flatten() for start in (0, 1))
        assert torch.stack([first, second]).corrcoef()[0, 1].abs() < 0.02


@pytest.mark.parametrize("rate", [0.25, 0.5])
def test_gradients_and_second_derivatives_pass_what_was_kept(rate: float) -> None:
    x = torch.randn(7, 5, dtype=torch.float64).T.requires_grad_()
    out = drop(x, rate)
    scale = (out != 0) / (1 - rate)
    (gradient,) = torch.autograd.grad((out**3).sum(), x, create_graph=True)
    assert_close(out, x * scale, rtol=1e-6, atol=1e-6)  # the scale is rounded to 32 bits
    assert_close(gradient, 3 * x**2 * scale**3, rtol=1e-6, atol=1e-6)
    (second,) = torch.autograd.grad(gradient.sum(), x)
    assert_close(second, 6 * x * scale**3, rtol=1e-6, atol=1e-6)


def test_the_mask_of_a_dropout_is_a_saved_tensor_that_hooks_can_drop() -> None:
    saved: list[Tensor] = []

    def pack(tensor: Tensor) -> int:
        saved.append(tensor)
        return len(saved) - 1

    x = torch.randn(4, 8, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda place: saved[place]):
        dropped = drop(x, 0.5)
    (mask,) = saved
    assert mask.dtype == torch.bool and mask.equal(dropped != 0)
    saved[0] = torch.zeros_like(mask)
    (gradient,) = torch.autograd.grad(dropped.sum(), x)
    assert gradient.equal(torch.zeros_like(x)), "the gradient reads what the hook returns"


def test_it_repeats_with_the_seed_and_leaves_evaluation_alone() -> None:
    layer, x = Dropout(0.5), torch.ones(SHAPE)
    torch.manual_seed(1)
    first, second = layer(x), layer(x)
    torch.manual_seed(1)
    assert torch.equal(layer(x), first)
    assert not torch.equal(first, second)
    assert layer.eval()(x) is x


def test_a_layer_that_drops_nothing_draws_nothing() -> None:
    state, x = torch.get_rng_state(), torch.randn(3, generator=torch.Generator().manual_seed(0))
    assert Dropout(0.0)(x) is x
    assert torch.equal(torch.get_rng_state(), state)


def attend_in_turn(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, _: Tensor, *longest: int) -> Tensor:
    """What torch's varlen_attn, which a CPU lacks, gives for (T, H, D): each sample alone."""
    samples = zip(*(x.split(starts.diff().tolist()) for x in (q, k, v)), strict=True)
    return torch.cat([attend(*(x.transpose(0, 1)[None] for x in one))[0].transpose(0, 1) for one in samples])


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_packed_softmax_attention_equals_the_masked_on_real_tokens(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device == "cpu":
        monkeypatch.setattr(varlen, "varlen_attn", attend_in_turn)
    torch.manual_seed(0)
    spec = LayerSpec(dim=128, num_heads=4, max_len=96)
    masked, packed = (cls(spec).to(device, torch.bfloat16) for cls in (FusedSoftmax, PackedSoftmax))
    packed.load_state_dict(masked.state_dict())
    lengths = torch.tensor([96, 1, 40])
    padding = Padding(lengths, torch.arange(96) < lengths[:, None]).to(device)
    x = torch.randn(3, 96, 128).to(device, torch.bfloat16)
    found = []
    for layer in (masked, packed):
        y = layer(x, padding)[padding.mask]
        y.float().square().sum().backward()
        found.append([y, *(parameter.grad for parameter in layer.parameters())])
    assert_close(*found, rtol=0.05, atol=0.05)
