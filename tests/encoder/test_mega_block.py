"""MEGA's block and its moving average: widths, dropouts, cost, extreme decays and the attentions that fill it."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from support.encoders import make_encoder
from support.plans import build_task
from support.runs import small_config
from torch import Tensor, nn
from torch.testing import assert_close

from sliceformer_lab.attention.contract import CallCounter
from sliceformer_lab.config.compose import CONF_DIR, load_option
from sliceformer_lab.config.schema import ConfigError, locate
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.encoder.ema import DampedEMA
from sliceformer_lab.encoder.factory import Encoder, build_encoder
from sliceformer_lab.encoder.mega_block import MegaBlock

DIM, TOKENS = 64, 16
MIXERS = ("mega", "mega_chunk", "csp", "mha", "sliceformer")
DIGITS = DataSpec(name="digits", num_classes=10, image_size=(8, 8), channels=1)


def make(
    attention: str = "mega",
    max_len: int = TOKENS,
    encoder: dict[str, Any] | None = None,
    mixer: dict[str, Any] | None = None,
    **block: Any,
) -> Encoder:
    return make_encoder(attention, block, {"position": "none"} | (encoder or {}), max_len, kind="mega", mixer=mixer)


def first_block(encoder: Encoder) -> Any:
    return encoder.blocks[0]


def tokens(length: int = TOKENS, batch: int = 3) -> Tensor:
    return torch.randn(batch, length, DIM, generator=torch.Generator().manual_seed(1))


def test_an_attention_without_queries_and_keys_gets_none_allocated() -> None:
    for attention in ("csp", "sliceformer", "mean"):
        block = first_block(make(attention))
        assert block.qk_scale is None and block.qk_shift is None
        assert block.gates.out_features == 3 * DIM  # update, reset and candidate; no z
        assert list(block.attention.parameters()) == []
    block = first_block(make("mha"))
    assert block.qk_scale.shape == block.qk_shift.shape == (2, DIM)
    assert block.gates.out_features == 4 * DIM
    assert list(block.attention.parameters()) == []


def test_values_are_as_wide_as_the_attention_needs() -> None:
    block = first_block(make("csp_wide"))
    assert block.value.out_features == block.out.in_features == 2 * DIM


@pytest.mark.parametrize("attention", ["mega_chunk", "csp"])
def test_cost_is_linear_around_a_linear_attention(attention: str) -> None:
    costs = []
    for length, batch in ((64, 2), (256, 2), (64, 8)):
        encoder = make(attention, length, mixer={"chunk_size": 16} if attention == "mega_chunk" else None)
        with CallCounter() as cost:
            encoder(tokens(length, batch).requires_grad_()).sum().backward()
        costs.append(cost)
    small, long, wide = costs
    assert long.largest <= 5 * small.largest
    assert small.operations == wide.operations and long.operations <= small.operations + 4


def test_dropouts_are_where_the_options_put_them() -> None:
    block = first_block(make(encoder={"dropout": 0.1, "attention_dropout": 0.3}, hidden_dropout=0.2))
    assert (block.dropout.p, block.mlp.drop2.p) == (0.1, 0.1)
    assert (block.hidden_dropout.p, block.mlp.drop1.p) == (0.2, 0.2)
    assert block.attention.spec.attention_dropout == 0.3
    seen: dict[str, Tensor] = {}
    block.gates.register_forward_pre_hook(lambda _, inputs: seen.update(gates=inputs[0]))
    with block.attention.observed(lambda v, _: seen.update(value=v)):
        block(tokens())
    for name, rate in (("gates", 0.1), ("value", 0.2)):  # the input of the gates, and the values
        assert (seen[name] == 0).float().mean().item() == pytest.approx(rate, abs=0.05)


@pytest.mark.parametrize("attention", ["mha", "mega"])
def test_rope_rotates_queries_and_keys(attention: str) -> None:
    plain, rotated, x = make(attention), make(attention, encoder={"position": "rope"}), tokens()
    for encoder in (plain, rotated):
        for block in encoder.blocks:
            nn.init.normal_(block.qk_scale, std=20.0)  # type: ignore[arg-type]
    rotated.load_state_dict(plain.state_dict())
    assert not torch.allclose(plain(x), rotated(x), atol=1e-3)


def test_an_observer_sees_the_input_and_the_output_of_the_operator() -> None:
    block, seen = first_block(make("csp")), dict[str, Tensor]()
    with block.attention.observed(lambda v, mixed: seen.update(input=v, output=mixed)):
        block(tokens())
    assert_close(seen["output"], block.attention.mix(seen["input"]), rtol=0, atol=0)


@cache
def config() -> dict[str, Any]:
    return small_config("block=mega", "encoder.position=none")


def test_an_attention_that_cannot_mix_alone_is_refused_with_the_names_of_those_that_can() -> None:
    with pytest.raises(ConfigError, match=r"MegaBlock .* which SAMSA cannot take; attentions that can: ") as error:
        build_task(config() | {"attention": load_option("attention", "samsa")}, DIGITS)
    able = str(error.value).partition("attentions that can: ")[2].split(", ")
    assert set(MIXERS) < set(able) and not {"samsa", "samsa_soft", "reformer"} & set(able)


def test_every_attention_that_is_not_refused_fills_the_block() -> None:
    for file in sorted((CONF_DIR / "attention").glob("*.yaml")):
        node: Any = OmegaConf.to_container(OmegaConf.load(file))
        is_class = "_target_" in node and file.stem != "hybrid"  # presets are of the same classes
        if is_class and MegaBlock.accepts(locate(node["_target_"])):
            torch.manual_seed(0)
            shallow = config()["encoder"] | {"depth": 1}
            encoder = build_encoder(shallow, load_option("block", "mega"), node, TOKENS, grid=(4, 4))
            encoder(tokens()).square().sum().backward()
            without = [n for n, p in encoder.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
            assert not without, f"{file.stem}: {without}"


def test_average_is_finite_where_a_decay_is_zero() -> None:
    layer = DampedEMA(DIM, 5, bidirectional=True, truncation=None)
    layer.delta.data.fill_(1e3)
    layer.alpha.data.fill_(1e3)
    out = layer(tokens(7))
    out.sum().backward()
    assert out.isfinite().all() and all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


def test_average_keeps_its_precision_under_autocast() -> None:
    layer, x = DampedEMA(DIM, 5, bidirectional=True, truncation=None), tokens(64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        averaged, of_bf16 = layer(x), layer(x.bfloat16())
    assert_close(averaged, layer(x))
    assert_close(of_bf16, layer(x.bfloat16().float()), atol=0.05, rtol=0.02)
