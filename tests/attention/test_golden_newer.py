"""Operators of 2021 to 2026 against golden vectors of the published code, and against loops over tokens."""

from __future__ import annotations

import pytest
import torch
from support.golden_files import FOLDER, Peer, check_peer, file_names, options_of
from torch import Tensor
from torch.testing import assert_close

from sliceformer_lab.attention import build_layer
from sliceformer_lab.attention.contract import make_spec, padded, tokens
from sliceformer_lab.attention.layer_state import BlockInputs
from sliceformer_lab.attention.matrix_toeplitz import MatrixToeplitz
from sliceformer_lab.attention.pooling import Pooling
from sliceformer_lab.attention.random_mixing import RandomMixing
from sliceformer_lab.attention.shift import Shift
from sliceformer_lab.attention.sliced_relu import SlicedReLU
from sliceformer_lab.attention.softpick import Softpick
from sliceformer_lab.attention.token_reshape import TokenReshape
from sliceformer_lab.config.compose import load_option

KERNEL = {"log_dt": "log_step", "log_A_real": "log_decay", "A_imag": "frequency", "C": "output"}
GATE = {"w_g": "gate.weight", "b_g": "gate.bias"}
PEERS = {
    "pool": Peer(attention="pooling", options={"kernel_size": "kernel_size", "subtract_input": "subtract_input"}),
    "random_mixing": Peer(
        attention="random_mixing", options={"max_len": "max_len", "scale": "scale"}, weights={"logits": "logits"}
    ),
    "token_reshape": Peer(attention="token_reshape", options={"stride": "stride", "revert": "revert"}),
    "shift": Peer(
        attention="shift",
        options={"fill": "fill", "n_div": "n_div", "steps": "steps"},
        values={"linear_paper_channel0": "linear_paper"},  # the file has the steps themselves, too
        weights={"steps": "steps"},
    ),
    "hsm": Peer(
        attention="hsm",
        options={"step": "index"},
        values={str(2**index): index for index in range(20)},
        fixed={"bidirectional": True},
        weights={"coef": "weights"},
    ),
    "softpick": Peer(attention="softpick", fixed={"eps": 1e-8}, gradient_atol=5e-5, gradient_rtol=1e-3),
    "differential": Peer(
        attention="differential",
        options={"layer": "index"},
        weights={f"lambda_{part}": f"lambda_{part}" for part in ("q1", "k1", "q2", "k2")} | {"norm_w": "scale"},
    ),
    "mlp_mixer": Peer(
        attention="mlp_mixer",
        options={"hidden": "hidden", "max_len": "max_len"},
        fixed={"activation": "gelu_tanh"},
        weights={"w1": "inner.weight", "b1": "inner.bias", "w2": "outer.weight", "b2": "outer.bias"},
    ),
    "sliced_relu": Peer(
        attention="sliced_relu",
        options={"variant": "variant", "scores": "scores"},
        weights={
            "score_w1": "score.0.weight",
            "score_b1": "score.0.bias",
            "score_w2": "score.2.weight",
            "score_b2": "score.2.bias",
            "score_w": "score.weight",
            "log_bandwidth": "bandwidth",
        },
    ),
    "dense": Peer(
        attention="matrix_dense",
        fixed={"matrix": "dense"},
        options={"max_len": "max_len"},
        weights={"weight": "weight"},
    ),
    "toeplitz": Peer(
        attention="matrix_toeplitz",
        fixed={"matrix": "toeplitz", "data_dependent": False},
        options={"max_len": "max_len"},
        weights={"forward_taps": "forward_taps", "reverse_taps": "reverse_taps"},
        layouts={"reverse_taps": lambda taps: taps[:, 1:]},  # the file has an unused first column
    ),
    "toeplitz_dd": Peer(
        attention="matrix_toeplitz_data",
        fixed={"matrix": "toeplitz", "data_dependent": True},
        options={"max_len": "max_len", "taps": "taps"},
        weights={"tap_w": "taps.weight", "tap_b": "taps.bias"},
    ),
    "low_rank_dd": Peer(
        attention="matrix_low_rank",
        fixed={"matrix": "low_rank", "data_dependent": True},
        options={"rank": "rank", "max_len": "max_len"},
    ),
    "lion": Peer(attention="lion", options={"mask": "mask"}, weights={"decay": "decay"}),
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
        options={"d_state": "state", "expand": "expand", "head_dim": "head_channels", "kernel_size": "kernel_size"},
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
        attention="rala",
        options={"kernel_size": "kernel_size"},
        fixed={"rope": False},
        weights=GATE | {"lepe_w": "conv.weight", "lepe_b": "conv.bias"},
    ),
    "polaformer": Peer(
        attention="polaformer",
        options={"kernel_size": "kernel_size", "alpha": "alpha"},
        fixed={"positional": True},
        sizes={"pos": ("max_len", 0)},
        weights=GATE
        | {"pos": "positions", "scale": "scale", "power": "power", "dwc_w": "conv.weight", "dwc_b": "conv.bias"},
    ),
    "agent": Peer(attention="agent", options={"agents": "agents"}, fixed={"kernel_size": 0, "position_bias": False}),
    "espformer": Peer(
        attention="espformer",
        options={"tau": "tau", "temperature": "temperature"},
        gradient_atol=5e-5,
        gradient_rtol=1e-3,
    ),
    "gmlp": Peer(
        attention="gmlp",
        options={"max_len": "max_len"},
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


LENGTHS = (1, 4, 9, 13)


def image(rows: int, columns: int) -> Tensor:
    return tokens(rows * columns, batch=1)


def test_pool_divides_by_the_neighbours_that_exist() -> None:
    samples = [tokens(n, batch=1)[0] for n in LENGTHS]
    layer = Pooling(make_spec(), kernel_size=5)
    mixed = layer.mix(*padded(samples, 16)[:1], given=BlockInputs(padded(samples, 16)[1]))
    for sample, row in zip(samples, mixed, strict=True):
        n = len(sample)
        expected = torch.stack([sample[max(0, i - 2) : i + 3].mean(0) - sample[i] for i in range(n)])
        assert_close(row[:n], expected)


def test_pool_takes_neighbours_in_the_image_and_leaves_the_prefix() -> None:
    order = tuple(torch.randperm(12, generator=torch.Generator().manual_seed(3)).tolist())
    layer = Pooling(make_spec(grid=(3, 4), num_prefix=1, token_order=order), subtract_input=False)
    cells = image(3, 4)
    v = torch.cat([tokens(1, batch=1, seed=5), cells[:, list(order)]], dim=1)
    mixed = layer.mix(v)
    assert_close(mixed[:, 0], v[:, 0])
    grid = cells[0].unflatten(0, (3, 4))
    for place, patch in enumerate(order):
        r, c = divmod(patch, 4)
        near = grid[max(0, r - 1) : r + 2, max(0, c - 1) : c + 2].flatten(0, 1)
        assert_close(mixed[0, 1 + place], near.mean(0))


@pytest.mark.parametrize("fill", ["zero", "keep", "circular"])
def test_shift_by_a_schedule_reads_within_the_real_tokens(fill: str) -> None:
    samples = [tokens(n, batch=1)[0] for n in LENGTHS]
    layer = Shift(make_spec(), steps="unit", fill=fill)  # type: ignore[arg-type]
    x, padding = padded(samples, 16)
    for sample, row in zip(samples, layer.mix(x, given=BlockInputs(padding)), strict=True):
        n = len(sample)
        for c, step in enumerate(layer.steps.tolist()):
            for i in range(n):
                outside = {"zero": 0.0, "keep": float(sample[i, c]), "circular": float(sample[(i - step) % n, c])}
                assert float(row[i, c]) == (float(sample[i - step, c]) if i >= step else outside[fill])


@pytest.mark.parametrize("steps", ["shiftvit", "s2"])
def test_shift_on_a_grid_moves_each_part_of_the_channels_its_own_way(steps: str) -> None:
    layer = Shift(make_spec(grid=(3, 4), num_prefix=1), steps=steps, fill="zero", n_div=8)  # type: ignore[arg-type]
    v = tokens(13, batch=1)
    mixed, grid = layer.mix(v)[0, 1:].unflatten(0, (3, 4)), v[0, 1:].unflatten(0, (3, 4))
    one = {"shiftvit": [(0, 1), (0, -1), (1, 0), (-1, 0), *[(0, 0)] * 4], "s2": [(-1, 0)] * 2 + [(1, 0)] * 2}
    reads = (one[steps] + [(0, -1)] * 2 + [(0, 1)] * 2)[:8]  # row and column that each channel reads from
    for c, (down, right) in enumerate(reads):
        for i in range(3):
            for j in range(4):
                inside = 0 <= i + down < 3 and 0 <= j + right < 4
                assert float(mixed[i, j, c]) == (float(grid[i + down, j + right, c]) if inside else 0.0)


def test_circular_shift_on_rows_and_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="fill=circular shifts along the sequence"):
        Shift(make_spec(grid=(3, 4)), steps="s2", fill="circular")


def test_random_mixing_is_drawn_once_and_is_no_parameter() -> None:
    torch.manual_seed(0)
    layer = RandomMixing(make_spec(), scale=8.0)
    torch.manual_seed(0)
    assert_close(layer.logits, RandomMixing(make_spec(), scale=8.0).logits)
    assert "logits" in layer.state_dict() and "logits" not in dict(layer.named_parameters())
    (weights,) = layer.implied_map(tokens(9, batch=1))[:, 0]  # type: ignore[index]
    assert_close(weights.sum(1), torch.ones(9))
    with pytest.raises(ValueError, match="at most 16 tokens, got 17"):
        layer.mix(tokens(17))


@pytest.mark.parametrize("length", range(1, 17))
def test_token_reshape_is_a_permutation_and_its_own_inverse(length: int) -> None:
    for index in range(4):
        layer = TokenReshape(make_spec(index=index))
        v = torch.arange(length * 8.0).view(1, length, 8)
        once = layer.mix(v)
        assert sorted(once.flatten().tolist()) == v.flatten().tolist()
        assert torch.equal(layer.mix(once), v)


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


@pytest.mark.parametrize("variant", ["relu", "bump"])
def test_sliced_relu_equals_the_weights_of_all_pairs(variant: str) -> None:
    torch.manual_seed(0)
    layer = SlicedReLU(make_spec(), variant=variant)  # type: ignore[arg-type]
    x = tokens(13, batch=1)
    v, q, k = layer.project(x)
    s, t = layer.score(q)[0].T, layer.score(k)[0].T  # (H, N)
    for head, mixed in enumerate(layer.split_heads(layer.mix(v, q, k))[0]):
        values, a, b = layer.split_heads(v)[0, head], s[head], t[head]
        if variant == "relu":
            spread = ((a.var(correction=0) + b.var(correction=0)) / 2 + 1e-6).sqrt()
            gaps = ((a - a.mean()) / spread)[:, None] - (b - b.mean()) / spread
            expected = 2 * gaps.relu() @ (values - values.mean(0)) / gaps.abs().sum(1, keepdim=True)
        else:
            width = torch.nn.functional.softplus(layer.bandwidth[head]) + 1e-4
            expected = (1 - (a[:, None] - b).abs() / width).relu() @ values / 13
        assert_close(mixed, expected, atol=1e-5, rtol=1e-4)


def test_softpick_has_a_gradient_where_all_scores_are_very_low() -> None:
    layer = Softpick(make_spec())
    q = torch.full((1, 4, 8), 30.0, requires_grad=True)
    out = layer.mix(tokens(4, batch=1), q, -q.detach())
    out.sum().backward()
    assert q.grad is not None and bool(q.grad.isfinite().all()) and not bool(out.any())


def test_a_toeplitz_matrix_with_one_weight_shifts_every_channel() -> None:
    layer = MatrixToeplitz(make_spec())
    with torch.no_grad():
        layer.forward_taps.zero_()
        layer.reverse_taps.zero_()
        layer.forward_taps[:, 3] = 1
    v = tokens(11)
    shift = Shift(make_spec(), steps="unit", fill="zero")
    shift.steps.fill_(3)
    assert_close(layer.mix(v), v + shift.mix(v) / (2 * 16**0.5))


def test_circular_shift_is_that_of_csp() -> None:
    node = load_option("attention", "csp_shift_only")
    csp, shift = build_layer(node, make_spec()), Shift(make_spec(), steps="linear_paper", fill="circular")
    x, padding = padded([tokens(n, batch=1)[0] for n in LENGTHS], 16)
    assert_close(
        csp.mix(x, given=BlockInputs(padding))[padding.mask], shift.mix(x, given=BlockInputs(padding))[padding.mask]
    )
