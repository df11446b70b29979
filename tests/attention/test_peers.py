"""Baselines in their limits, which golden files do not reach."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from sliceformer_lab.attention.contract import HEADS, MAX_LEN, build, make_spec, padded, tokens
from sliceformer_lab.attention.cosformer import Cosformer
from sliceformer_lab.attention.linformer import Linformer
from sliceformer_lab.attention.mha import MHA
from sliceformer_lab.attention.sinkformer import Sinkformer
from sliceformer_lab.attention.synthesizer import Synthesizer


@torch.no_grad()
def test_linformer_with_identity_projections_is_softmax_attention() -> None:
    layer, mha, x = Linformer(make_spec(), num_slots=MAX_LEN, share_kv=False), MHA(make_spec()), tokens(MAX_LEN)
    for slots in (layer.key_slots, layer.value_slots):
        assert slots is not None
        slots.copy_(torch.eye(MAX_LEN))
    assert not mha.load_state_dict(layer.state_dict(), strict=False).missing_keys
    assert_close(layer(x), mha(x))


def test_sinkformer_converges_to_doubly_stochastic_weights_of_the_real_tokens() -> None:
    layer = Sinkformer(make_spec(), n_it=201)
    x, padding = padded([tokens(n, batch=1, seed=n)[0] for n in (1, 4, 9, 13)], MAX_LEN)
    maps, real = layer.implied_map(x, padding), padding.mask[:, None].expand(-1, HEADS, -1).float()
    assert maps is not None
    assert_close(maps.sum(dim=3), real)
    assert_close(maps.sum(dim=2), real)


def test_sinkformer_bears_scores_that_exp_does_not() -> None:
    maps = Sinkformer(make_spec(), n_it=5).implied_map(100 * tokens(MAX_LEN))
    assert maps is not None
    assert_close(maps.sum(dim=3), torch.ones(2, HEADS, MAX_LEN))


@pytest.mark.parametrize("mode", ["random", "factorized_random", "dense"])
def test_synthesizer_adds_products_of_queries_and_keys_to_its_scores(mode: str) -> None:
    """Without queries it has no projections for them, and zero queries add nothing."""
    layers = [Synthesizer(make_spec(), mode=mode, mix_dot_product=mix) for mix in (True, False)]  # type: ignore[arg-type]
    both, alone = layers
    assert set(alone.state_dict()) == {name for name in both.state_dict() if not name.startswith(("query", "key"))}
    alone.load_state_dict({name: both.state_dict()[name] for name in alone.state_dict()})
    assert both.query is not None
    x, parameters = tokens(MAX_LEN), list(both.query.parameters())
    assert not torch.allclose(both(x), alone(x))
    for parameter in parameters:
        torch.nn.init.zeros_(parameter)
    assert_close(both(x), alone(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_cosformer_runs_in_half_precision_without_autocast(dtype: torch.dtype) -> None:
    layer, x = build(Cosformer), tokens(MAX_LEN)
    expected = layer(x)
    assert_close(layer.to(dtype)(x.to(dtype)).float(), expected, atol=2e-2, rtol=2e-2)
