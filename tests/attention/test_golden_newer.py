"""Operators of 2021 to 2026 against golden vectors of the published code, and what these do not reach."""

from __future__ import annotations

import pytest
import torch
from support.golden_files import FOLDER, Peer, check_peer, file_names, options_of
from torch.testing import assert_close

from sliceformer_lab.attention.base import BlockInputs
from sliceformer_lab.attention.contract import make_spec, tokens
from sliceformer_lab.attention.random_mixing import RandomMixing
from sliceformer_lab.attention.softpick import Softpick
from sliceformer_lab.attention.token_reshape import TokenReshape
from sliceformer_lab.batch import Padding

KERNEL = {"log_dt": "log_step", "log_A_real": "log_decay", "A_imag": "frequency", "C": "output"}
GATE = {"w_g": "gate.weight", "b_g": "gate.bias"}
PEERS = {
    "pool": Peer(attention="pooling"),
    "random_mixing": Peer(attention="random_mixing", options={"scale": "scale"}),
    "token_reshape": Peer(attention="token_reshape"),
    "shift": Peer(
        attention="shift",
        values={"linear_paper_channel0": "linear_paper"},  # the file has the steps themselves, too
    ),
    "hsm": Peer(
        attention="hsm",
        options={"step": "index"},
        values={str(2**index): index for index in range(20)},
        fixed={"bidirectional": True},
        weights={"coef": "weights"},
    ),
    "softpick": Peer(attention="softpick", fixed={"eps": 1e-8}, gradient_atol=5e-5, gradient_rtol=1e-3),
    "differential": Peer(attention="differential", options={"layer": "index"}, weights={"norm_w": "scale"}),
    "mlp_mixer": Peer(
        attention="mlp_mixer",
        fixed={"activation": "gelu_tanh"},
        weights={"w1": "inner.weight", "b1": "inner.bias", "w2": "outer.weight", "b2": "outer.bias"},
    ),
    "sliced_relu": Peer(
        attention="sliced_relu",
        weights={
            "score_w1": "score.0.weight",
            "score_b1": "score.0.bias",
            "score_w2": "score.2.weight",
            "score_b2": "score.2.bias",
            "score_w": "score.weight",
            "log_bandwidth": "bandwidth",
        },
    ),
    "dense": Peer(attention="matrix_dense", fixed={"matrix": "dense"}),
    "toeplitz": Peer(
        attention="matrix_toeplitz",
        fixed={"matrix": "toeplitz", "data_dependent": False},
        layouts={"reverse_taps": lambda taps: taps[:, 1:]},  # the file has an unused first column
    ),
    "toeplitz_dd": Peer(
        attention="matrix_toeplitz_data",
        fixed={"matrix": "toeplitz", "data_dependent": True},
        weights={"tap_w": "taps.weight", "tap_b": "taps.bias"},
    ),
    "low_rank_dd": Peer(attention="matrix_low_rank", fixed={"matrix": "low_rank", "data_dependent": True}),
    "lion": Peer(attention="lion"),
    "lion_selective": Peer(
        attention="lion_selective",
        fixed={"mask": "selective"},
        weights={"decay_w": "factor.weight", "decay_b": "factor.bias"},
    ),
    "s4d": Peer(
        attention="s4d",
        options={"d_state": "state"},
        fixed={"bidirectional": True},
        weights={"D": "skip"}
        | {
            f"{golden}_{part}": f"{ours}.{name}"
            for golden, ours in {"fwd": "from_start", "bwd": "from_end"}.items()
            for part, name in KERNEL.items()
        },
    ),
    "hydra": Peer(
        attention="hydra",
        options={"d_state": "state", "head_dim": "head_channels"},
        fixed={"groups": 1},
        weights={
            "in_proj": "gate.weight value.weight states.weight steps.weight",
            "conv_w": "conv.weight",
            "conv_b": "conv.bias",
            "dt_bias": "step_bias",
            "A_log": "log_decay",
            "D": "skip.bias",
            "fc_D": "skip.weight",
            "norm_w": "norm",
            "out_proj": "out.weight",
        },
    ),
    "rala": Peer(
        attention="rala", fixed={"rope": False}, weights=GATE | {"lepe_w": "conv.weight", "lepe_b": "conv.bias"}
    ),
    "polaformer": Peer(
        attention="polaformer",
        fixed={"positional": True},
        sizes={"pos": ("max_len", 0)},
        weights=GATE | {"pos": "positions", "dwc_w": "conv.weight", "dwc_b": "conv.bias"},
    ),
    "agent": Peer(attention="agent", fixed={"kernel_size": 0, "position_bias": False}),
    "espformer": Peer(attention="espformer", gradient_atol=5e-5, gradient_rtol=1e-3),
    "gmlp": Peer(
        attention="gmlp",
        fixed={"activation": "gelu"},
        weights={
            "w_in": "gated.weight value.weight",
            "b_in": "gated.bias value.bias",
            "norm_w": "norm.weight",
            "norm_b": "norm.bias",
            "spatial_w": "spatial.weight",
            "spatial_b": "spatial.bias",
        },
    ),
}


MATRICES = {  # golden options of the operation matrix_mixer
    ("dense", False): "dense",
    ("toeplitz", False): "toeplitz",
    ("toeplitz", True): "toeplitz_dd",
    ("low_rank", True): "low_rank_dd",
}


def peer_of(name: str) -> str:
    """The key in PEERS of a golden file."""
    golden = options_of(FOLDER / f"{name}.npz")
    if golden["op"] == "lion":
        return "lion_selective" if golden["mask"] == "selective" else "lion"
    if golden["op"] != "matrix_mixer":
        return str(golden["op"])
    matrix = golden["matrix"], golden.get("data_dependent", False)
    return MATRICES.get(matrix, f"matrix_mixer {matrix}")


def test_every_operation_has_a_committed_file() -> None:
    assert {peer_of(name) for name in file_names("newer")} == set(PEERS)


@pytest.mark.parametrize("name", file_names("newer"))
def test_equals_golden_vectors(name: str) -> None:
    check_peer(name, PEERS, peer_of(name))


@pytest.mark.parametrize("lengths", [(12, 7), (1, 2)])
def test_random_mixing_at_a_large_scale_is_exact_in_half_precision_with_padding(lengths: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    layer = RandomMixing(make_spec(max_len=12), scale=32.0)
    v, padding = torch.randn(2, 12, 8), Padding.from_lengths(torch.tensor(lengths), 12)
    mixed = layer.mix(v.half(), given=BlockInputs(padding)).float()
    for row, length in enumerate(lengths):
        alone = layer.logits[:length, :length].softmax(dim=1) @ v[row, :length]
        assert_close(mixed[row, :length], alone, atol=2e-3, rtol=2e-3)


def test_random_mixing_is_drawn_once_and_is_no_parameter() -> None:
    layer = RandomMixing(make_spec(), scale=8.0)
    torch.manual_seed(0)
    assert_close(layer.logits, RandomMixing(make_spec(), scale=8.0).logits)
    assert "logits" in layer.state_dict() and "logits" not in dict(layer.named_parameters())
    (weights,) = layer.implied_map(tokens(9, batch=1))[:, 0]  # type: ignore[index]
    assert_close(weights.sum(1), torch.ones(9))


def test_token_reshape_joins_all_tokens_of_a_power_of_the_heads() -> None:
    before = torch.eye(16)
    for index in range(4):  # 2 heads: 16 tokens in 4 layers
        layer = TokenReshape(make_spec(index=index))
        moved = layer.mix(torch.arange(16.0)[None, :, None].expand(1, 16, 8))[0]  # the token that each value came from
        joined = before.clone()
        for token, sources in enumerate(moved.long().tolist()):
            joined[token] = before[[token, *sources]].max(0)[0]
        before = joined
    assert bool((before > 0).all())


def test_softpick_has_a_gradient_where_all_scores_are_very_low() -> None:
    layer = Softpick(make_spec())
    q = torch.full((1, 4, 8), 30.0, requires_grad=True)
    out = layer.mix(tokens(4, batch=1), q, -q.detach())
    out.sum().backward()
    assert q.grad is not None and bool(q.grad.isfinite().all()) and not bool(out.any())
