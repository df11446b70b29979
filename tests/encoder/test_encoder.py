"""The shared encoder: blocks against their formula, positions, pooling and padding against brute force."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from support.encoders import make_encoder
from torch import Tensor, nn
from torch.testing import assert_close

from sliceformer_lab.batch import Padding
from sliceformer_lab.config.compose import load_option, option_names
from sliceformer_lab.config.schema import ConfigError, check_node
from sliceformer_lab.encoder.embed import ImageEmbedding
from sliceformer_lab.encoder.encoder_options import EncoderOptions
from sliceformer_lab.encoder.factory import Encoder, build_encoder
from sliceformer_lab.encoder.norm import build_norm, normalise
from sliceformer_lab.encoder.pool import Pool

DIM, TOKENS = 64, 16
OPTIONS = EncoderOptions(dim=DIM, depth=2, num_heads=4, mlp_dim=128, position="none")
NORMS = ("layernorm", "rmsnorm", "scalenorm", "batchnorm")


def tokens(batch: int = 3, length: int = TOKENS) -> Tensor:
    return torch.randn(batch, length, DIM, generator=torch.Generator().manual_seed(1))


def first_block(encoder: Encoder) -> Any:
    """The first block of an encoder with random values in norms and biases."""
    for parameter in encoder.parameters():
        if parameter.ndim == 1:
            nn.init.normal_(parameter, 1.0, 0.5)
    return encoder.blocks[0]


def test_pre_norm_block_adds_to_the_input_tokens() -> None:
    block, x = first_block(make_encoder("random_permutation")), tokens()
    h = x + block.attention(block.norm1(x))
    assert_close(block(x), h + block.mlp(block.norm2(h)))


def test_post_norm_block_normalises_each_sum() -> None:
    block, x = first_block(make_encoder(block={"norm_first": False, "activation": "relu"})), tokens()
    h = block.norm1(x + block.attention(x))
    assert_close(block(x), block.norm2(h + block.mlp(h)))
    assert isinstance(block.mlp.act, nn.ReLU)


def test_rezero_starts_as_the_identity_and_scales_both_branches() -> None:
    encoder, x = make_encoder(block={"residual": "rezero_shared"}), tokens()
    block = first_block(encoder)
    assert_close(block(x), x)
    block.gain.data.fill_(0.5)
    h = x + 0.5 * block.attention(block.norm1(x))
    assert_close(block(x), h + 0.5 * block.mlp(block.norm2(h)))


def test_without_skip_connections_a_branch_takes_the_place_of_its_input() -> None:
    block, x = first_block(make_encoder("csp", block={"residual": "none"})), tokens()
    h = block.attention(block.norm1(x))
    assert_close(block(x), block.mlp(block.norm2(h)))
    with pytest.raises(ConfigError, match="choose drop_path=0"):
        make_encoder(block={"residual": "none"}, encoder={"drop_path": 0.1})


def test_shared_rezero_is_one_parameter_of_the_encoder() -> None:
    encoder, plain, x = make_encoder(block={"residual": "rezero_shared"}), make_encoder(), tokens()
    assert encoder.gain is not None and encoder.gain.item() == 0 and getattr(encoder.gain, "no_decay", False)
    assert len(list(encoder.parameters())) == len(list(plain.parameters())) + 1
    assert {"gain", "blocks.0.gain", "blocks.1.gain"} <= encoder.state_dict().keys()  # as in checkpoints of old runs
    encoder.gain.data.fill_(1.0)
    plain.load_state_dict({n: v for n, v in encoder.state_dict().items() if "gain" not in n})
    assert_close(encoder(x), plain(x))


def test_drop_path_grows_linearly_and_drops_whole_samples() -> None:
    encoder = make_encoder(encoder={"depth": 3, "drop_path": 0.5})
    assert [block.drop_path.drop_prob for block in encoder.blocks] == [0.0, 0.25, 0.5]  # type: ignore[union-attr]
    dropped = encoder.blocks[2].drop_path(torch.ones(64, 4, 8))  # type: ignore[operator]
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    assert (dropped == dropped[:, :1, :1]).all()
    assert_close(encoder.eval()(tokens()), encoder(tokens()))


def test_dropouts_are_where_the_options_put_them() -> None:
    encoder = make_encoder(encoder={"dropout": 0.1, "embed_dropout": 0.2, "attention_dropout": 0.3})
    block = first_block(encoder)
    assert (block.dropout.p, block.mlp.drop1.p, block.mlp.drop2.p) == (0.1, 0.1, 0.1)
    assert (encoder.embed_dropout.p, block.attention.spec.attention_dropout) == (0.2, 0.3)


def test_final_norm_comes_last() -> None:
    with_norm, without, x = make_encoder(block={"final_norm": True}), make_encoder(), tokens()
    with_norm.load_state_dict(without.state_dict(), strict=False)
    assert with_norm.norm is not None and without.norm is None
    assert_close(with_norm(x), nn.functional.layer_norm(without(x), (DIM,)))


def block_variants() -> list[tuple[str, dict[str, Any]]]:
    """Every YAML of a block, with every residual where it has a choice."""
    residuals = [{"residual": kind} for kind in ("plain", "rezero_shared", "none")]
    return [
        (name, variant)
        for name in option_names("block")
        if not check_node(load_option("block", name), "block").target.needs_edges  # test_gps has those
        for variant in (residuals if "residual" in load_option("block", name) else [{}])
    ]


@pytest.mark.parametrize(("block", "variant"), block_variants(), ids=str)
def test_every_parameter_takes_part(block: str, variant: dict[str, Any]) -> None:
    attention = load_option("attention", "mha")
    encoder = build_encoder(load_option("encoder", "tiny"), load_option("block", block) | variant, attention, TOKENS)
    for name, parameter in encoder.named_parameters():
        if "gain" in name:
            parameter.data.fill_(0.5)
    encoder(tokens()).square().sum().backward()
    assert [name for name, p in encoder.named_parameters() if p.grad is None] == []


PADDED: list[tuple[str, str, dict[str, Any]]] = [
    *(("vit", "mha", {"norm": n, "norm_first": f, "final_norm": True}) for n in NORMS for f in (True, False)),
    ("mega", "csp", {"norm": "layernorm"}),
    ("mega", "mha", {"norm": "scalenorm", "ffn": False}),
    ("mega", "sliceformer", {"norm": "batchnorm", "norm_first": True, "final_norm": True}),
    ("mega", "mega", {"norm": "layernorm", "norm_first": True, "ffn": False, "truncation": 4}),
    ("set", "mha", {"inducing": None}),
    ("set", "mha", {"inducing": 5, "layer_norm": True}),
    ("set", "sliceformer", {"inducing": None}),
]


@pytest.mark.parametrize(("block", "attention", "options"), PADDED, ids=str)
def test_padding_does_not_change_real_tokens_and_leaves_zeros(
    block: str, attention: str, options: dict[str, Any]
) -> None:
    encoder, real = make_encoder(attention, options, {"position": "none"}, kind=block), tokens()[:, :10]
    for training in (True, False):
        alone = encoder.train(training)(real)
        for extra in (1, 6):
            padded = torch.cat([real, torch.full((3, extra, DIM), 1e3)], dim=1).requires_grad_()
            out = encoder(padded, Padding.from_lengths(torch.full((3,), 10), 10 + extra))
            assert_close(out[:, :10], alone, atol=1e-5, rtol=1e-5)
            assert out[:, 10:].abs().max() == 0
            (gradient,) = torch.autograd.grad(out.square().sum(), padded)
            assert gradient.isfinite().all() and not gradient[:, 10:].any()


@pytest.mark.parametrize("final_norm", [True, False])
def test_every_block_and_the_output_get_zeros_on_padding(final_norm: bool) -> None:
    encoder = make_encoder(block={"final_norm": final_norm}, encoder={"depth": 3})
    first_block(encoder)
    seen: list[Tensor] = []
    for block in encoder.blocks:
        block.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    padding = Padding.from_lengths(torch.tensor([16, 3, 9]), TOKENS)
    seen.append(encoder(tokens(), padding))
    assert padding is not None and len(seen) == 4
    assert all(x[~padding.mask].abs().max() == 0 for x in seen)


def test_norms_match_their_formula() -> None:
    x = tokens()
    rms = (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    assert_close(normalise(build_norm("rmsnorm", DIM, 1e-5), x, None), x / rms)
    scale = build_norm("scalenorm", DIM, 1e-5)
    next(scale.parameters()).data.fill_(3.0)
    assert_close(normalise(scale, x, None), 3 * x / rms)


def test_scalenorm_of_large_tokens_is_finite_in_float16() -> None:
    x = 300 * tokens().half()  # squares are larger than the largest float16
    expected = x.float() / x.float().square().mean(-1, keepdim=True).sqrt()
    assert_close(normalise(build_norm("scalenorm", DIM, 1e-5).half(), x, None), expected.half())


def test_batchnorm_takes_its_statistics_from_real_tokens() -> None:
    lengths = torch.tensor([16, 3, 9])
    padding, x = Padding.from_lengths(lengths, TOKENS), tokens()
    ours, plain = build_norm("batchnorm", DIM, 1e-5), nn.BatchNorm1d(DIM)
    expected = plain(torch.cat([row[:n] for row, n in zip(x, lengths, strict=True)]))
    y = normalise(ours, x, padding)
    assert_close(torch.cat([row[:n] for row, n in zip(y, lengths, strict=True)]), expected)
    assert_close(ours.state_dict(), plain.state_dict())


def test_more_tokens_than_max_len_are_refused() -> None:
    with pytest.raises(ValueError, match="17 tokens are more than the 16"):
        make_encoder()(tokens(length=TOKENS + 1))


def position_of(kind: str, **options: Any) -> Tensor:
    """What a position adds to tokens of zeros, (N, C)."""
    encoder = make_encoder(encoder={"position": kind}, **options)
    assert encoder.position is not None
    zero = torch.zeros(1, encoder.max_len, DIM)
    return encoder.position(zero)[0]  # type: ignore[no-any-return]


def test_learned_positions_are_one_row_per_token_and_never_decayed() -> None:
    encoder = make_encoder(max_len=5)
    assert encoder.position is not None
    assert encoder.position.table.shape == (1, 5, DIM) and getattr(encoder.position.table, "no_decay", False)
    x = tokens(length=3)
    assert_close(encoder.position(x), x + encoder.position.table[:, :3])


def wave(coordinate: int, channel: int, width: int) -> float:
    phase = coordinate / math.pow(10000, 2 * (channel // 2) / width)
    return math.cos(phase) if channel % 2 else math.sin(phase)


def test_sincos_matches_its_formula() -> None:
    expected = torch.tensor([[wave(n, c, DIM) for c in range(DIM)] for n in range(TOKENS)])
    assert_close(position_of("sincos"), expected, atol=1e-5, rtol=1e-5)


def test_sincos2d_shares_the_channels_between_row_and_column_and_spares_the_prefix() -> None:
    rows, columns, half = 3, 5, DIM // 2
    expected = torch.zeros(1 + rows * columns, DIM)
    for n in range(rows * columns):
        for c in range(half):
            expected[1 + n, c] = wave(n // columns, c, half)
            expected[1 + n, half + c] = wave(n % columns, c, half)
    actual = position_of("sincos2d", max_len=16, grid=(rows, columns))
    assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("encoder", "attention", "message"),
    [
        ({"position": "sincos2d"}, "mha", "sincos2d needs the patch grid"),
        ({"position": "rope"}, "mean", "rope rotates queries and keys, but this attention has none"),
        ({"position": "sincos", "dim": 9, "num_heads": 3}, "mha", "even number of channels"),
        ({"num_heads": 5}, "mha", "num_heads=5 does not divide dim=64"),
        ({"depth": 0}, "mha", "encoder.depth: given 0"),
        ({"dropout": 1.0}, "mha", "encoder.dropout: given 1.0"),
        ({"deepth": 2}, "mha", "did you mean depth"),
        ({"init": "vit_small"}, "mha", "write timm:<model>"),
        ({"init_file": "weights.pth"}, "mha", "init_file needs init"),
    ],
)
def test_impossible_options_are_refused_in_one_sentence(encoder: dict[str, Any], attention: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        make_encoder(attention, encoder=encoder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("block", "attention"), [("mega", "luna"), ("set", "csp"), ("set", "hybrid")])
def test_an_attention_that_a_block_has_no_place_for_is_refused(block: str, attention: str) -> None:
    with pytest.raises(ConfigError, match=r"attention: \w+ has a place for .*, and \w+ is none of them"):
        make_encoder(attention, kind=block)


def test_rope_reaches_the_attention_and_adds_nothing() -> None:
    encoder = make_encoder(encoder={"position": "rope"}, grid=(4, 4))
    spec = first_block(encoder).attention.spec
    assert encoder.position is None and spec.rope and spec.grid == (4, 4) and spec.num_prefix == 0


def test_patches_are_read_row_by_row_as_a_linear_map() -> None:
    embedding: Any = ImageEmbedding((8, 12), 3, 4, DIM, cls=True)
    images = torch.randn(2, 3, 8, 12)
    weight, bias = embedding.patches.proj.weight.flatten(1), embedding.patches.proj.bias
    x = embedding(images)
    assert (embedding.num_tokens, embedding.grid, x.shape) == (7, (2, 3), (2, 7, DIM))
    assert_close(x[:, 0], embedding.cls[:, 0].expand(2, -1))
    for n in range(6):
        top, left = 4 * (n // 3), 4 * (n % 3)
        patch = images[:, :, top : top + 4, left : left + 4].flatten(1)
        assert_close(x[:, 1 + n], patch @ weight.T + bias, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("mode", ["cls", "mean", "max", "softmax", "ref_min", "ref_max"])
def test_pooling_reads_real_tokens_only(mode: Any) -> None:
    lengths = [16, 3, 9]
    padding = Padding.from_lengths(torch.tensor(lengths), TOKENS)
    x, reference = tokens(), torch.randn(3, TOKENS, generator=torch.Generator().manual_seed(2))
    for row, length in enumerate(lengths):
        x[row, length:], reference[row, length:] = 1e3, (-1e3 if mode == "ref_min" else 1e3)
    pool = Pool(mode, OPTIONS)
    pooled = pool(x, padding, reference)
    for row, length in enumerate(lengths):
        real, order = x[row, :length], reference[row, :length].tolist()
        expected = {
            "cls": real[0],
            "mean": sum(real) / length,
            "max": torch.stack([real[:, c].sort().values[-1] for c in range(DIM)]),
            "softmax": real if pool.score is None else pool.score(real)[:, 0].softmax(0) @ real,
            "ref_min": real[order.index(min(order))],
            "ref_max": real[order.index(max(order))],
        }[mode]
        assert_close(pooled[row], expected)
        assert_close(pool(real[None], None, reference[row : row + 1, :length])[0], expected)


@pytest.mark.parametrize(
    ("attention", "message"),
    [("mha", "MHA does not"), ("csp", r"CSP does not; .* attention\.reference=channel0")],
)
def test_reference_pooling_is_refused_for_an_attention_that_follows_no_channel(attention: str, message: str) -> None:
    layer = first_block(make_encoder(attention)).attention
    Pool("mean", OPTIONS).check(layer)
    with pytest.raises(ConfigError, match=f"pool=ref_min .* {message}"):
        Pool("ref_min", OPTIONS).check(layer)


@pytest.mark.parametrize(
    ("block", "attention", "norm_first"),
    [
        ("vit", "csp_reference", True),
        ("vit", "csp_reference", False),
        ("mega", "csp_reference", False),
        ("set", "sliceformer_reference", None),
    ],
)
def test_the_encoder_shows_the_channel_its_last_sort_follows(
    block: str, attention: str, norm_first: bool | None
) -> None:
    options = {} if norm_first is None else {"norm_first": norm_first}
    encoder, x = make_encoder(attention, options, {"position": "none"}, kind=block), tokens()
    padding = Padding.from_lengths(torch.tensor([16, 3, 9]), TOKENS)
    out, reference = encoder.with_reference(x, padding)
    seen: list[Tensor] = []
    with encoder.attentions[-1].observed(lambda v, _: seen.append(v[..., 0])):
        assert_close(out, encoder(x, padding))
    assert_close(reference, seen[0])
    Pool("ref_max", OPTIONS).check(encoder.attentions[-1])


@pytest.mark.parametrize(
    ("kind", "block"), [("mega", {"hidden_dropout": 0.5, "norm": "batchnorm"}), ("vit", {"norm": "batchnorm"})]
)
def test_the_reference_channel_is_that_of_the_same_training_pass(kind: str, block: dict[str, Any]) -> None:
    encoder = make_encoder("csp_reference", block, {"position": "none"}, kind=kind).train()
    sorted_values: list[Tensor] = []
    with encoder.attentions[-1].observed(lambda v, _: sorted_values.append(v[..., 0].detach())):
        reference = encoder.with_reference(tokens())[1]
    assert_close(reference, sorted_values[-1])
    counts = [int(count) for name, count in encoder.named_buffers() if name.endswith("num_batches_tracked")]
    assert set(counts) == {1}
