"""The softmax baseline against torch's own, and the properties of its options."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from sliceformer_lab.attention.contract import DIM, HEADS, make_spec, padded, tokens
from sliceformer_lab.attention.mha import MHA
from sliceformer_lab.attention.rotary import rotate

N = 11


def torch_attention(mha: MHA) -> nn.MultiheadAttention:
    """torch's attention with the weights of `mha`."""
    theirs = nn.MultiheadAttention(DIM, HEADS, batch_first=True)
    projections = (mha.query, mha.key, mha.value)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([projection.weight for projection in projections]))
        theirs.in_proj_bias.copy_(torch.cat([projection.bias for projection in projections]))
    theirs.out_proj.load_state_dict(mha.out.state_dict())
    return theirs


def scores(q: Tensor, k: Tensor) -> Tensor:
    """(B, N, H*D) queries and keys -> (B, H, N, N)."""
    return torch.einsum("bihd,bjhd->bhij", *(t.unflatten(-1, (HEADS, -1)) for t in (q, k)))


def test_equals_torch_attention_under_bias_and_padding() -> None:
    mha = MHA(make_spec())
    x, padding = padded([tokens(n, batch=1)[0] for n in (5, N)], N)
    bias = torch.randn(2, HEADS, N, N)
    bias[:, :, 2, 4] = -torch.inf
    mask = bias.masked_fill(~padding.mask[:, None, None], -torch.inf).flatten(0, 1)
    expected, weights = torch_attention(mha)(x, x, x, attn_mask=mask, average_attn_weights=False)
    assert_close(mha(x, padding, bias)[padding.mask], expected[padding.mask])
    assert_close(mha.implied_map(x, padding, bias), weights)


def test_a_query_with_no_allowed_key_attends_to_the_real_tokens() -> None:
    x, padding = padded([tokens(5, batch=1)[0]], N)
    bias = torch.full((1, HEADS, N, N), -torch.inf)
    mha = MHA(make_spec())
    assert_close(mha.implied_map(x, padding, bias), mha.implied_map(x, padding), atol=2e-3, rtol=0)


def test_qk_norm_divides_each_head_by_its_root_mean_square() -> None:
    mha, x = MHA(make_spec(), qk_norm=True), tokens(N)
    with torch.no_grad():
        mha.query_norm.weight.copy_(torch.arange(1.0, 5.0))
    _, q, _ = mha.project(x)
    heads = mha.query(x).unflatten(-1, (HEADS, -1))
    expected = heads / heads.pow(2).mean(-1, keepdim=True).add(1e-6).sqrt() * torch.arange(1.0, 5.0)
    assert_close(q, expected.flatten(-2))


def test_gate_multiplies_the_mix_by_a_sigmoid_of_the_input() -> None:
    mha, x = MHA(make_spec(), gate=True), tokens(N)
    mixed = mha.mix(*mha.project(x))
    assert_close(mha(x), mha.out(mixed / (1 + torch.exp(-mha.gate(x)))))


def test_times_tokens_multiplies_the_mix_by_the_largest_number_of_tokens() -> None:
    plain, times = MHA(make_spec(max_len=2 * N)), MHA(make_spec(max_len=2 * N), times_tokens=True)
    times.load_state_dict(plain.state_dict())
    projected = plain.project(tokens(N))
    assert_close(times.mix(*projected), 2 * N * plain.mix(*projected))


def test_rope_scores_depend_on_the_distance_only() -> None:
    mha = MHA(make_spec(rope=True), qk_norm=True)
    with torch.no_grad():
        mha.query_norm.weight.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))  # a scale after rope would break this
    same = tokens(1, batch=1).expand(1, N, DIM)
    _, q, k = mha.project(same)
    found = scores(q, k)
    assert_close(found[..., 1:, 1:], found[..., :-1, :-1], atol=1e-5, rtol=1e-5)
    assert found[0, 0, 0].std() > 0.1


def test_rope_on_a_grid_depends_on_row_and_column_distance_only() -> None:
    rows, columns = 3, 4
    q, k = (tokens(1, batch=1, seed=s).expand(1, rows * columns, DIM) for s in (1, 2))
    found = scores(*(rotate(t, HEADS, grid=(rows, columns)) for t in (q, k)))
    by_place = found.unflatten(3, (rows, columns)).unflatten(2, (rows, columns))  # (1, H, row, column, row', column')
    assert_close(by_place[:, :, 1:, :, 1:], by_place[:, :, :-1, :, :-1], atol=1e-5, rtol=1e-5)
    assert_close(by_place[:, :, :, 1:, :, 1:], by_place[:, :, :, :-1, :, :-1], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(by_place[0, 0, 0, 0, :, 0], by_place[0, 0, 0, 0, 0, :rows])


def test_rope_on_a_grid_leaves_the_prefix_alone() -> None:
    x = tokens(2 + 6)
    rotated = rotate(x, HEADS, grid=(2, 3), num_prefix=2)
    assert torch.equal(rotated[:, :2], x[:, :2])
    assert_close(rotated[:, 2:], rotate(x[:, 2:], HEADS, grid=(2, 3)))


def test_rope_keeps_lengths_and_rotates_by_the_published_angles() -> None:
    x = torch.zeros(1, N, 4)
    x[..., ::2] = 1.0  # both pairs point along their first axis
    rotated = rotate(x, 1)
    position = torch.arange(N)
    for pair, frequency in enumerate((1.0, 0.01)):
        assert_close(rotated[0, :, 2 * pair], torch.cos(position * frequency))
        assert_close(rotated[0, :, 2 * pair + 1], torch.sin(position * frequency))


def test_rope_refuses_a_head_it_cannot_pair_up() -> None:
    with pytest.raises(ValueError, match="multiple of 4, got 2"):
        rotate(tokens(6), 4, grid=(2, 3))
