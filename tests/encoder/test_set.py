"""Set Transformer: equivariance, padding, attentions that fill the block or are refused, and training."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from support.plans import build_task, run
from support.runs import small_config
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from sliceformer_lab.attention import LayerSpec
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.compose import load_option
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.encoder.encoder_options import EncoderOptions
from sliceformer_lab.encoder.factory import Encoder, build_encoder
from sliceformer_lab.encoder.pool import Pool
from sliceformer_lab.encoder.set_block import PMA
from sliceformer_lab.measures.probe_record import ProbeRecord

DIM, TOKENS = 64, 12
OPTIONS = EncoderOptions(dim=DIM, depth=2, num_heads=4, mlp_dim=128, position="none")
SPEC = LayerSpec(dim=DIM, num_heads=4)
DIGITS = DataSpec(name="digits", num_classes=10, image_size=(8, 8), channels=1)
SAB, ISAB = {"inducing": None}, {"inducing": 5}
VARIANTS = [("mha", SAB), ("mha", ISAB), ("mha", {"inducing": 5, "layer_norm": True}), ("sliceformer", SAB)]
variants = pytest.mark.parametrize(("attention", "block"), VARIANTS, ids=str)


def make(
    attention: str, block: dict[str, Any], encoder: dict[str, Any] | None = None, max_len: int = TOKENS
) -> Encoder:
    torch.manual_seed(0)
    return build_encoder(
        load_option("encoder", "tiny") | {"position": "none"} | (encoder or {}),
        load_option("block", "set") | block,
        load_option("attention", attention),
        max_len,
    )


def tokens(length: int = TOKENS) -> Tensor:
    return torch.randn(3, length, DIM, generator=torch.Generator().manual_seed(1))


def with_garbage(x: Tensor, extra: int) -> tuple[Tensor, Padding | None]:
    padded = torch.cat([x, torch.full((len(x), extra, DIM), 1e3)], dim=1)
    return padded, Padding.from_lengths(torch.full((len(x),), x.shape[1]), x.shape[1] + extra)


def set_config(*overrides: str) -> dict[str, Any]:
    return small_config("block=set", "task.pool=pma", *overrides)


@pytest.mark.parametrize("extra", [1, 5])
def test_padding_does_not_change_the_pooled_vector(extra: int) -> None:
    pool, real = Pool("pma", OPTIONS), tokens(7)
    padded, padding = with_garbage(real, extra)
    assert_close(pool(padded, padding), pool(real))


@pytest.mark.parametrize("block", [SAB, ISAB], ids=str)
def test_permuted_tokens_give_permuted_outputs(block: dict[str, Any]) -> None:
    encoder, x, order = make("mha", block), tokens(), torch.randperm(TOKENS)
    assert_close(encoder(x[:, order]), encoder(x)[:, order])


def test_sorting_by_channel_0_keeps_equivariance_and_a_plain_sort_does_not() -> None:
    x, order = tokens(), torch.randperm(TOKENS, generator=torch.Generator().manual_seed(0))
    aligned, plain = make("sliceformer_reference", SAB), make("sliceformer", SAB)
    assert_close(aligned(x[:, order]), aligned(x)[:, order])
    assert (plain(x[:, order]) - plain(x)[:, order]).abs().max() > 0.1


def test_the_pooled_vector_does_not_depend_on_the_order() -> None:
    pool, x = Pool("pma", OPTIONS), tokens()
    assert pool(x).shape == (3, DIM)
    assert_close(pool(x[:, torch.randperm(TOKENS)]), pool(x))


@variants
def test_every_parameter_learns(attention: str, block: dict[str, Any]) -> None:
    encoder, pool, x = make(attention, block), Pool("pma", OPTIONS), tokens().requires_grad_()
    pool(encoder(x)).square().sum().backward()
    assert x.grad is not None and x.grad.any()
    dead = [
        name for part in (encoder, pool) for name, p in part.named_parameters() if p.grad is None or not p.grad.any()
    ]
    # a key's bias shifts every score of a query alike, which softmax does not see
    assert [name for name in dead if not name.endswith("key.bias")] == []


def test_sliced_block_adds_sorted_values_to_the_queries() -> None:
    block: Any = make("sliceformer", SAB).blocks[0]
    x = tokens()
    h = block.mab.query(x) + block.mab.value(x).sort(dim=1).values
    assert_close(block(x), h + block.mab.out(h).relu())
    assert block.mab.key is None


@pytest.mark.parametrize(("block", "linear"), [(SAB, False), (ISAB, True)], ids=str)
def test_inducing_points_make_the_cost_linear(block: dict[str, Any], linear: bool) -> None:
    encoder, costs = make("mha", block, max_len=1024), []
    for length in (512, 1024):
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):  # the fused one is not counted
            encoder(torch.randn(1, length, DIM))
        costs.append(counter.get_total_flops())
    assert (costs[1] < 2 * costs[0] * 1.001) == linear


def test_seeds_are_left_out_of_weight_decay() -> None:
    assert PMA(SPEC, num_seeds=3).seeds.no_decay  # type: ignore[attr-defined]


def test_dropout_and_stochastic_depth_are_the_encoders() -> None:
    x = tokens()
    for option in ("dropout", "drop_path", "attention_dropout"):
        encoder = make("mha", ISAB, {option: 0.5})
        assert_close(encoder.eval()(x), encoder(x))
        assert not torch.equal(encoder.train()(x), encoder.eval()(x)), option


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["attention=hybrid", "attention.pattern=[mha,csp]"],
            "SetBlock has a place for mha or sliceformer, which CSP cannot take; attentions that can: mha, ",
        ),
        (
            ["attention=sliceformer", "block.inducing=16"],
            "inducing=16 leaves Sliceformer with fewer values than queries",
        ),
        (["attention=sliceformer", "attention.inner_mult=2"], "leave head_dim and inner_mult at their defaults"),
        (["attention=mha", "attention.gate=true"], "qk_norm and gate need mha's own projections"),
        (["attention=mha", "encoder.position=rope"], "a set needs another position"),
        (["attention=mha", "block.inducing=0"], "block.inducing: given 0"),
    ],
    ids=str,
)
def test_what_cannot_fill_the_block_is_refused_before_data_is_read(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        build_task(set_config(*overrides), DIGITS)


def test_a_pairwise_bias_is_refused_with_inducing_points() -> None:
    bias = torch.zeros(3, 4, TOKENS, TOKENS)
    bias[..., 0] = 5
    encoder = make("mha", SAB)
    assert not torch.allclose(encoder(tokens(), bias=bias), encoder(tokens()))
    with pytest.raises(ValueError, match=r"set block\.inducing=null"):
        make("mha", ISAB)(tokens(), bias=bias)


def test_spectra_are_measured_on_the_values_that_the_block_mixes(tmp_path: Path) -> None:
    run(set_config("attention=mha", "block.inducing=4", "callbacks=default", "optim.epochs=1"), tmp_path)
    record = ProbeRecord.load(tmp_path / "spectrum.npz")
    ranks = {place: int((record.at("spectrum", place, "raw")[0] >= 0).sum()) for place in ("input", "output")}
    assert ranks == {"input": 4, "output": 16}
