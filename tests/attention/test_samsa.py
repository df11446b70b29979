"""SAMSA in its limits, and the properties of sampling, supports, noise and block."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from support.plans import build_data, build_task, prepared
from support.runs import small_config
from torch import Tensor, nn
from torch.testing import assert_close

from sliceformer_lab.attention import LayerSpec, samsa
from sliceformer_lab.attention.base import BlockInputs
from sliceformer_lab.attention.contract import HEADS, CallCounter, make_spec, padded, tokens
from sliceformer_lab.attention.mha import MHA
from sliceformer_lab.attention.samsa import SAMSA, gumbel_noise, proxy_weights
from sliceformer_lab.attention.samsa_published import SAMSAPublished, cap_gradient
from sliceformer_lab.attention.samsa_random import SAMSARandom

N, K = 11, 3
SAMPLERS = [{"mode": mode, "proxy": proxy} for mode in ("hard", "soft") for proxy in ("pairwise", "softmax")]


def layer_of(sample_size: int = K, **options: Any) -> SAMSA:
    return SAMSA(make_spec(), sample_size=sample_size, **options)


def sample(layer: SAMSA, x: Tensor, scores: Tensor | None = None) -> samsa.TokenSample:
    v, _, k = layer.project(x)
    assert k is not None
    return layer.sample(k, v, layer.score(x) if scores is None else scores)


@pytest.fixture
def no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samsa, "gumbel_noise", torch.zeros_like)


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("sample_size", [N, N + 4])
@pytest.mark.parametrize("options", SAMPLERS, ids=lambda options: "_".join(options.values()))
def test_room_for_every_token_and_no_supports_is_mha(options: dict[str, Any], sample_size: int, training: bool) -> None:
    mha = MHA(make_spec())
    layer = layer_of(sample_size, supports=False, **options).train(training)
    layer.load_state_dict(mha.state_dict() | layer.score.state_dict(prefix="score."))
    x, padding = padded([tokens(n, batch=1)[0] for n in (1, 5, N)], N)
    bias = torch.randn(3, HEADS, N, N)
    bias[:, :, 2, 0] = -torch.inf
    for pad, pairwise in itertools.product((None, padding), (None, bias)):
        real = padding.mask if pad else torch.ones_like(padding.mask)
        inputs = x if pad else tokens(N, batch=3)
        assert_close(layer(inputs, pad, pairwise)[real], mha(inputs, pad, pairwise)[real])


@pytest.mark.parametrize("tau", [0.1, 1.0])
@pytest.mark.parametrize("proxy", ["pairwise", "softmax"])
def test_rows_of_the_proxy_sum_to_one_however_large_the_scores(proxy: samsa.Proxy, tau: float) -> None:
    for scale in (0.0, 1.0, 1e4):
        z = (scale * torch.randn(2, HEADS, 2 * K)).sort(-1, descending=True)[0].requires_grad_()
        own, rivals = proxy_weights(z, proxy, tau)
        assert own.shape == (2, HEADS, K, 1) and rivals.shape == (2, HEADS, K, K)
        assert (own >= 0).all() and (rivals >= 0).all()
        assert_close(own + rivals.sum(-1, keepdim=True), torch.ones(2, HEADS, K, 1))
        (own.square().sum() + rivals.square().sum()).backward()
        assert z.grad is not None and z.grad.isfinite().all()


@pytest.mark.parametrize("options", SAMPLERS, ids=lambda options: "_".join(options.values()))
@pytest.mark.parametrize("num_tokens", [1, K, 2 * K - 1])
def test_supports_fill_what_a_short_sequence_leaves(num_tokens: int, options: dict[str, Any]) -> None:
    layer, x = layer_of(**options).eval(), tokens(num_tokens)
    with torch.no_grad():
        layer.score[-1].bias.fill_(100.0)  # all tokens go before all supports
    index = sample(layer, x).index
    assert ((index < num_tokens).sum(-1) == min(num_tokens, K)).all()
    assert all(len(set(row.tolist())) == K for row in index.flatten(0, 1))
    assert layer(x).isfinite().all()


def test_training_draws_noise_and_evaluation_draws_none() -> None:
    layer, x = layer_of(), tokens(N)
    assert not torch.equal(layer.train()(x), layer(x))
    assert torch.equal(layer.eval()(x), layer(x))
    noisy = SAMSAPublished(make_spec(), sample_size=K).eval()
    assert not torch.equal(noisy(x), noisy(x))


@pytest.mark.parametrize("noise_on_support", [True, False])
def test_noise_reaches_supports_iff_the_option_is_on(noise_on_support: bool) -> None:
    layer = layer_of(noise_on_support=noise_on_support).train()
    found = sample(layer, tokens(1), torch.full((2, 1, HEADS), -1e3))  # the token is out, so all slots are supports
    drawn = layer.supports.scores.gather(1, found.index[0] - 1)
    assert torch.equal(found.scores[0], drawn) != noise_on_support


def test_noise_is_gumbel() -> None:
    noise = gumbel_noise(torch.empty(200_000))
    assert noise.isfinite().all()
    assert noise.mean().item() == pytest.approx(0.5772, abs=0.01)
    assert noise.var().item() == pytest.approx(math.pi**2 / 6, rel=0.02)
    assert (noise < 0).float().mean().item() == pytest.approx(math.exp(-1), abs=0.005)


def test_bias_follows_the_selected_tokens_and_leaves_supports_alone() -> None:
    layer, x = layer_of(2 * N).eval(), tokens(N)  # more slots than tokens, so supports are among them
    bias = torch.randn(2, HEADS, N, N)
    with_supports = torch.cat([bias, torch.zeros(2, HEADS, N, 4 * N)], dim=-1)
    v, q, k = layer.project(x)
    found = sample(layer, x)
    assert (found.index >= N).any() and (found.index < N).any()
    scores = layer.split_heads(q) @ found.keys.mT / layer.head_dim**0.5
    scores = scores + torch.take_along_dim(with_supports, found.index[:, :, None], dim=-1)
    expected = layer.merge_heads(scores.softmax(-1) @ found.values)
    assert_close(layer.mix(v, q, k, scores=layer.score(x), given=BlockInputs(bias=bias)), expected)


def test_query_whose_bias_hides_every_slot_sees_them_all() -> None:
    layer, x = layer_of(N, supports=False).eval(), tokens(N)
    assert_close(layer(x, bias=torch.full((2, HEADS, N, N), -torch.inf)), layer(x), atol=2e-3, rtol=0)


@pytest.mark.usefixtures("no_noise")
def test_dropout_acts_on_slots_in_training_only() -> None:
    layer, x = SAMSA(make_spec(attention_dropout=0.5), sample_size=K), tokens(N)
    plain = layer_of()
    plain.load_state_dict(layer.state_dict())
    assert_close(layer.eval()(x), plain.eval()(x))
    assert not torch.allclose(layer.train()(x), plain(x))


@pytest.mark.parametrize("options", SAMPLERS, ids=lambda options: "_".join(options.values()))
def test_cost_is_linear_in_tokens_in_training_too(options: dict[str, Any]) -> None:
    def cost(num_tokens: int) -> CallCounter:
        layer, x = layer_of(16, **options).train(), tokens(num_tokens).requires_grad_()
        with CallCounter() as counted:
            layer(x).sum().backward()
        return counted

    small, long = cost(1024), cost(4096)
    assert long.largest <= 4 * small.largest
    assert long.operations == small.operations


def test_temperature_follows_the_mode_unless_given() -> None:
    assert [layer_of(mode=mode).tau for mode in ("hard", "soft")] == [1.0, 0.1]
    assert layer_of(mode="soft", tau=0.7).tau == 0.7


def test_block_of_the_paper_learns_digits_through_one_shared_scale() -> None:
    config = small_config("attention=samsa", "block=samsa", "attention.sample_size=8", "optim.lr=0.01")
    data = prepared(build_data(config))
    task = build_task(config, data.spec).train()
    optimizer = task.optim.build_optimizer(task)
    score = task.encoder.blocks[0].attention.score[0].weight
    reached = []
    for batch in itertools.islice(data.train_dataloader(), 2):
        optimizer.zero_grad()
        task.loss(task(batch), batch.target).backward()
        reached.append(bool(score.grad.any()))
        optimizer.step()
    assert reached == [False, True]  # nothing passes a branch until its scale has left 0
    gains = {id(block.gain): block.gain.item() for block in task.encoder.blocks}
    assert len(gains) == 1 and 0.0 not in gains.values()
    assert all(isinstance(norm, nn.RMSNorm) for block in task.encoder.blocks for norm in (block.norm1, block.norm2))


@pytest.mark.usefixtures("no_noise")
def test_a_cap_changes_gradients_only_where_they_exceed_it() -> None:
    z = (0.1 * torch.randn(2, HEADS, 2 * K)).sort(-1, descending=True)[0]
    z[:, 0] *= 100  # the pairs of one head are far apart, so its derivatives are small

    def derivative(cap: float | None, tau: float) -> Tensor:
        leaf = z.clone().requires_grad_()
        wins = proxy_weights(leaf if cap is None else cap_gradient(leaf, tau, cap), "pairwise", tau)
        assert_close(wins[0], proxy_weights(z, "pairwise", tau)[0], rtol=0, atol=0)
        return torch.autograd.grad(wins[0].square().sum(), leaf)[0]

    assert_close(derivative(0.25, 1.0), derivative(None, 1.0))  # p (1 - p) is never above 1/4
    free, capped = derivative(None, 0.1), derivative(0.25, 0.1)
    factors = (capped / free)[free != 0]
    assert factors.max() <= 1 and factors.min() < 0.2
    for head in range(HEADS):
        ratio = (capped / free)[:, head][free[:, head] != 0]
        assert_close(ratio, ratio[:1].expand_as(ratio))  # one factor for a head in the whole batch


def test_raw_scores_read_the_tokens_before_the_norm_of_the_block() -> None:
    config = small_config("attention=samsa_published", "block=samsa_published", "attention.sample_size=4")
    data = build_data(config)
    block = build_task(config, data.spec).encoder.blocks[0]
    seen: list[Tensor] = []
    block.attention.score.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    x = 3 + torch.randn(2, N, config["encoder"]["dim"])
    block(x)
    assert torch.equal(seen[0], x)


@pytest.mark.usefixtures("no_noise")
def test_the_published_code_drops_weights_in_evaluation_too() -> None:
    layer = SAMSAPublished(make_spec(attention_dropout=0.5), sample_size=K).eval()
    assert not torch.equal(layer(tokens(N)), layer(tokens(N)))


def test_the_published_starts_are_wide_supports_and_kaiming_projections() -> None:
    layer = SAMSAPublished(LayerSpec(dim=256, num_heads=2))
    assert layer.supports is not None and isinstance(layer.query, nn.Linear)
    assert layer.supports.keys.std().item() == pytest.approx(1, abs=0.02)
    assert layer.query.weight.std().item() == pytest.approx(256**-0.5, rel=0.02)


def test_samsa_random_draws_every_candidate_equally_often_in_training() -> None:
    torch.manual_seed(0)
    layer = SAMSARandom(make_spec(), sample_size=K).train()
    x = 100 * tokens(N, batch=1).expand(4_000, -1, -1)
    candidates = N + 2 * K
    counts = torch.stack([drawn.flatten().bincount(minlength=candidates) for drawn in sample(layer, x).index.unbind(1)])
    assert_close(counts / len(x), torch.full((HEADS, candidates), K / candidates), atol=0.03, rtol=0)


def test_samsa_random_evaluates_with_the_same_positions_whatever_the_tokens_and_the_padding() -> None:
    layer = SAMSARandom(make_spec(), sample_size=K).eval()
    one = tokens(N - 2, batch=1)[0]
    x, padding = padded([one, one.flip(0)], N)
    v, _, k = layer.project(x)
    assert k is not None
    index = layer.sample(k, v, layer.score(x), padding).index
    assert_close(index[0], index[1])
    real = index[:1].where(index[:1] < N, index[:1] - 2)  # supports are numbered after the tokens
    assert_close(sample(layer, tokens(N - 2, batch=1)).index, real)
    assert len({tuple(head.tolist()) for head in index[0]}) > 1, "heads have samples of their own"


def test_samsa_random_is_samsa_with_other_scores_and_learns_none() -> None:
    layer, other = layer_of().eval(), SAMSARandom(make_spec(), sample_size=K).eval()
    assert layer.supports is not None and other.supports is not None
    shared = {key: value for key, value in other.state_dict().items() if "score." not in key}
    layer.load_state_dict(shared | layer.score.state_dict(prefix="score."))
    x = tokens(N)
    v, q, k = layer.project(x)
    assert_close(layer.mix(v, q, k, scores=other.score(x)), layer.mix(v, q, k, scores=other.score(-x)))
    assert_close(layer.project_out(v, layer.mix(v, q, k, scores=other.score(x))), other(x))
    assert not [name for name, _ in other.named_parameters() if "score" in name]
