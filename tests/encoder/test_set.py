"""Set Transformer: its cost, its dropouts, attentions that fill the block or are refused, and training."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from support.encoders import make_encoder
from support.plans import build_task, run
from support.runs import small_config
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from sliceformer_lab.attention import LayerSpec
from sliceformer_lab.config.compose import load_option
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.encoder.factory import Encoder
from sliceformer_lab.encoder.set_block import PMA
from sliceformer_lab.measures import plots
from sliceformer_lab.measures.probe_record import ProbeRecord

DIM, TOKENS = 64, 12
SPEC = LayerSpec(dim=DIM, num_heads=4)
DIGITS = DataSpec(name="digits", num_classes=10, image_size=(8, 8), channels=1)
SAB, ISAB = {"inducing": None}, {"inducing": 5}


def make(
    attention: str, block: dict[str, Any], encoder: dict[str, Any] | None = None, max_len: int = TOKENS
) -> Encoder:
    return make_encoder(attention, block, {"position": "none"} | (encoder or {}), max_len, kind="set")


def tokens(length: int = TOKENS) -> Tensor:
    return torch.randn(3, length, DIM, generator=torch.Generator().manual_seed(1))


def set_config(*overrides: str) -> dict[str, Any]:
    return small_config("block=set", "task.pool=pma", *overrides)


def test_sorting_by_channel_0_keeps_equivariance_and_a_plain_sort_does_not() -> None:
    x, order = tokens(), torch.randperm(TOKENS, generator=torch.Generator().manual_seed(0))
    aligned, plain = make("sliceformer_reference", SAB), make("sliceformer", SAB)
    assert_close(aligned(x[:, order]), aligned(x)[:, order])
    assert (plain(x[:, order]) - plain(x)[:, order]).abs().max() > 0.1


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
    ("attention", "options", "message"),
    [
        (
            "hybrid",
            {"attention": {"pattern": ["mha", "csp"]}},
            "SetBlock has a place for mha or sliceformer, which CSP cannot take; attentions that can: mha, ",
        ),
        ("sliceformer", {"block": {"inducing": 16}}, "inducing=16 leaves Sliceformer with fewer values than queries"),
        ("sliceformer", {"attention": {"inner_mult": 2}}, "leave head_dim and inner_mult at their defaults"),
        ("mha", {"attention": {"gate": True}}, "qk_norm and gate need mha's own projections"),
        ("mha", {"encoder": {"position": "rope"}}, "a set needs another position"),
        ("mha", {"block": {"inducing": 0}}, "block.inducing: given 0"),
    ],
    ids=str,
)
def test_what_cannot_fill_the_block_is_refused_before_data_is_read(
    attention: str, options: dict[str, dict[str, Any]], message: str
) -> None:
    config = set_config() | {"attention": load_option("attention", attention)}
    changed = {node: config[node] | own for node, own in options.items()}
    with pytest.raises(ConfigError, match=re.escape(message)):
        build_task(config | changed, DIGITS)


def test_a_pairwise_bias_is_refused_with_inducing_points() -> None:
    bias = torch.zeros(3, 4, TOKENS, TOKENS)
    bias[..., 0] = 5
    encoder = make("mha", SAB)
    assert not torch.allclose(encoder(tokens(), bias=bias), encoder(tokens()))
    with pytest.raises(ValueError, match=r"set block\.inducing=null"):
        make("mha", ISAB)(tokens(), bias=bias)


def test_spectra_are_measured_on_the_values_that_the_block_mixes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "plot_spectra", lambda *_: None)  # drawing takes longer than all else
    run(set_config("attention=mha", "block.inducing=4", "callbacks=default", "optim.epochs=1"), tmp_path)
    record = ProbeRecord.load(tmp_path / "spectrum.npz")
    ranks = {place: int((record.at("spectrum", place, "raw")[0] >= 0).sum()) for place in ("input", "output")}
    assert ranks == {"input": 4, "output": 16}
