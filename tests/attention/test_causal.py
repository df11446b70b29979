"""Causal layers: csp_causal against its definition, and encoders in which no token sees a later one."""

from __future__ import annotations

import pytest
import torch
from support.encoders import make_encoder
from torch.testing import assert_close

from sliceformer_lab.attention import LayerSpec, build_layer
from sliceformer_lab.attention.csp_causal import CSPCausal
from sliceformer_lab.config.compose import load_option
from sliceformer_lab.config.schema import ConfigError

TOKENS = 11
AHEAD = ("csp", "sliceformer", "mean", "performer")


def causal_csp(**options: object) -> CSPCausal:
    spec = LayerSpec(dim=6, num_heads=1, max_len=TOKENS, causal=True, index=1, depth=2)
    layer = build_layer(load_option("attention", "csp_causal") | options, spec)
    assert isinstance(layer, CSPCausal)
    return layer


def value_at(column: list[float], token: int) -> float:
    return column[token] if 0 <= token < len(column) else 0.0


def block_value(column: list[float], step: int, size: int, i: int) -> float:
    start = i // size * size
    return sorted(value_at(column, slot - step) for slot in range(start, start + size))[i - start]


def sliding_value(column: list[float], step: int, size: int, i: int, rank: int) -> float:
    window = (slot - step if slot >= 0 else -1 for slot in range(i - size + 1, i + 1))
    return sorted(value_at(column, token) for token in window)[rank]


@pytest.mark.parametrize("shift", ["unit", "linear_paper", "power_paper"])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("window", ["block", "sliding"])
def test_csp_causal_is_its_definition(window: str, size: int, shift: str) -> None:
    layer = causal_csp(window=window, group_size=size, shift=shift)
    v = torch.randn(2, TOKENS, 6, generator=torch.Generator().manual_seed(0))
    out = layer.mix(v)
    for b, c in ((0, 0), (0, 3), (1, 2), (1, 5)):
        column, step = v[b, :, c].tolist(), int(layer.steps[c])
        for i in range(TOKENS):
            if window == "block":
                expected = block_value(column, step, size, i)
            else:
                expected = sliding_value(column, step, size, i, c % size)
            assert float(out[b, i, c]) == pytest.approx(expected), (b, c, i)


@pytest.mark.parametrize("window", ["block", "sliding"])
def test_source_index_names_the_token_of_every_value(window: str) -> None:
    layer, v = causal_csp(window=window, group_size=3), torch.randn(2, TOKENS, 6)
    source = layer.source_index(v, None)
    assert_close(layer.mix(v), v.gather(1, source.clamp(min=0)).masked_fill(source < 0, 0), rtol=0, atol=0)
    assert (source <= torch.arange(TOKENS)[:, None]).all()


def test_no_step_is_shorter_than_a_sorted_window_allows() -> None:
    assert int(causal_csp(group_size=4, shift="unit").steps.min()) == 3
    assert int(causal_csp(group_size=4, shift="unit", window="sliding").steps.min()) == 0


WITHOUT_QUERIES = ("csp_causal", "csp_causal_sliding", "random_permutation", "depthwise_conv")


@pytest.mark.parametrize(
    ("attention", "position"),
    [(name, position) for name in ("mha", "linear") for position in ("learned", "rope")]
    + [(name, "none") for name in WITHOUT_QUERIES],
)
def test_no_token_of_an_encoder_depends_on_a_later_one(attention: str, position: str) -> None:
    given = {"position": position}
    model = make_encoder(attention, {}, given, TOKENS, kind="transformer", causal=True).eval()
    x = torch.randn(2, TOKENS, model.options.dim, requires_grad=True)
    out = model(x)
    for last in (0, 4, TOKENS - 2):
        changed = x.detach().clone()
        changed[:, last + 1 :] = torch.randn_like(changed[:, last + 1 :])
        assert_close(model(changed)[:, : last + 1], out[:, : last + 1])
        (gradient,) = torch.autograd.grad(out[:, last].square().sum(), x, retain_graph=True)
        assert gradient[:, : last + 1].any() and not gradient[:, last + 1 :].any()


@pytest.mark.parametrize(
    ("attention", "block", "message"),
    [
        *(
            (name, "transformer", r"attention: \w+ reads later tokens, [^\n]*; choose mha or csp_causal")
            for name in AHEAD
        ),
        ("mha", "mega", "block: MegaBlock reads later tokens; choose block=transformer"),
        ("mha", "post_norm", "block: norm=batchnorm takes statistics of later tokens too; choose norm=layernorm"),
    ],
)
def test_what_looks_ahead_is_refused_in_a_causal_encoder(attention: str, block: str, message: str) -> None:
    norm = {"norm": "batchnorm"} if block == "post_norm" else {}
    with pytest.raises(ConfigError, match=f"^{message}$"):
        make_encoder(attention, norm, kind=block, causal=True)
