"""Every check of the contract passes on a sound toy attention and fails on one that breaks only this rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sliceformer_lab.attention.contract as checks
from sliceformer_lab.attention import Attention, LayerSpec
from sliceformer_lab.attention.base import ALONE, BlockInputs
from sliceformer_lab.batch import Padding


class Sound(Attention):
    """Each token plus the mean of the real tokens; each toy below breaks one rule."""

    order_sensitive = False
    complexity = "N C"
    source = "toy"

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        if given.padding is None:
            return v + v.mean(1, keepdim=True)
        total = v.masked_fill(~given.padding.mask[:, :, None], 0).sum(1, keepdim=True)
        return v + total / given.padding.lengths[:, None, None]

    def implied_map(self, x: Tensor, padding: Padding | None = None, bias: Tensor | None = None) -> Tensor | None:
        num_tokens = x.shape[1]
        real = padding.mask if padding else torch.ones(x.shape[:2], dtype=torch.bool)
        mean = (real / real.sum(1, keepdim=True))[:, None, None]
        return (torch.eye(num_tokens) + mean).expand(-1, self.spec.num_heads, -1, -1)


def toy(**changed: Any) -> type[Attention]:
    """A toy with other methods or class attributes than `Sound`."""
    return type("Toy", (Sound,), changed)


def mixing(change: Callable[[Attention, Tensor, Padding | None], Tensor], **declared: Any) -> type[Attention]:
    """A toy with a changed `mix` of `Sound`; `declared` sets class attributes."""

    def mix(self: Attention, v: Tensor, q: Any = None, k: Any = None, given: BlockInputs = ALONE) -> Tensor:
        return change(self, Sound.mix(self, v, given=given), given.padding)

    return toy(mix=mix, implied_map=Attention.implied_map, **declared)


def running(change: Callable[[Attention, Tensor, Tensor], Tensor]) -> type[Attention]:
    """A toy that changes the output of `forward` for its input."""

    def forward(self: Attention, x: Tensor, padding: Padding | None = None, bias: Tensor | None = None) -> Tensor:
        return change(self, Sound.forward(self, x, padding, bias), x)

    return toy(forward=forward)


class DeadParameter(Sound):
    def __init__(self, spec: LayerSpec) -> None:
        super().__init__(spec)
        self.dead = nn.Parameter(torch.zeros(1))


class ZeroGradient(DeadParameter):
    def forward(self, x: Tensor, padding: Padding | None = None, bias: Tensor | None = None) -> Tensor:
        return super().forward(x, padding, bias) + 0 * self.dead


class DrawsAnew(Sound):
    """Keeps its random signs out of checkpoints."""

    def __init__(self, spec: LayerSpec) -> None:
        super().__init__(spec)
        self.register_buffer("signs", torch.randn(self.width), persistent=False)

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        return super().mix(v * self.signs, given=given)


class ProjectsAnyway(Sound):
    """Projects for a block that projects already, in place of refusing it."""

    mixable = False

    def __init__(self, spec: LayerSpec) -> None:
        super().__init__(replace(spec, project=True))


class BuildsAnyway(Sound):
    """Does not refuse a causal layer."""

    def __init__(self, spec: LayerSpec) -> None:
        super().__init__(replace(spec, causal=False))


def mix_of_padding(layer: Attention, v: Tensor, q: Any = None, k: Any = None, given: BlockInputs = ALONE) -> Tensor:
    return Sound.mix(layer, v)


def mix_of_bias(layer: Attention, v: Tensor, q: Any = None, k: Any = None, given: BlockInputs = ALONE) -> Tensor:
    mixed = Sound.mix(layer, v, given=given)
    return mixed if given.bias is None else mixed + given.bias.mean()


def map_of_itself(layer: Attention, x: Tensor, padding: Any = None, bias: Any = None) -> Tensor:
    return torch.eye(x.shape[1]).expand(len(x), layer.spec.num_heads, -1, -1)


def later_gradient(layer: Attention, v: Tensor, q: Any = None, k: Any = None, given: BlockInputs = ALONE) -> Tensor:
    """All values are from earlier tokens, and a gradient from all."""
    return v + v.mean(1, keepdim=True) - v.mean(1, keepdim=True).detach()


def later_number(layer: Attention, v: Tensor, q: Any = None, k: Any = None, given: BlockInputs = ALONE) -> Tensor:
    return v / v.shape[1]


class SquareBackward(torch.autograd.Function):
    """Identity with an N x N tensor in its backward only."""

    @staticmethod
    def forward(ctx: Any, v: Tensor) -> Tensor:
        return v.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient + 0 * (gradient @ gradient.mT).sum()


def loop(over: int) -> Callable[[Attention, Tensor, Padding | None], Tensor]:
    return lambda layer, v, padding: torch.stack([part * 2 for part in v.unbind(over)], dim=over)


def blocks(layer: Attention, v: Tensor, padding: Padding | None) -> Tensor:
    return torch.cat([block.sort(1)[0] for block in v.split(64, dim=1)], dim=1)


def full_length(layer: Attention, y: Tensor, x: Tensor) -> Tensor:
    return torch.cat([y, y.new_zeros(len(y), (layer.spec.max_len or 0) - y.shape[1], y.shape[2])], dim=1)


def mean_of_samples(self: Attention, v: Tensor, q: Any = None, k: Any = None, given: BlockInputs = ALONE) -> Tensor:
    if given.padding is not None:
        raise ValueError("no padding")
    return v + v.mean(0)


def infinite_gradient_at_padding(layer: Attention, v: Tensor, padding: Padding | None) -> Tensor:
    return v if padding is None else v + (v - v).where(~padding.mask[:, :, None], 1).sqrt()


BROKEN: list[tuple[Callable[[checks.Factory], None], type[Attention]]] = [
    (checks.check_declares_complexity_and_source, toy(source="")),
    (checks.check_lengths, mixing(lambda layer, v, padding: v / torch.tensor(v.shape[1] - 1))),
    (checks.check_lengths, running(lambda layer, y, x: y[:, : y.shape[1] // 4 * 4])),
    (checks.check_lengths, running(lambda layer, y, x: y[:, :1])),
    (checks.check_lengths, running(full_length)),
    (checks.check_lengths, running(lambda layer, y, x: y if len(x) else y[..., 0])),
    (checks.check_gradients_reach_everything, DeadParameter),
    (checks.check_gradients_reach_everything, ZeroGradient),
    (checks.check_gradients_reach_everything, mixing(lambda layer, v, padding: v.detach())),
    (checks.check_gradients_reach_everything, mixing(lambda layer, v, padding: (v - v).sqrt())),
    (checks.check_derivatives, mixing(lambda layer, v, padding: v * v.detach())),
    (checks.check_derivatives, mixing(lambda layer, v, padding: v.float().exp().to(v.dtype))),
    (checks.check_padding_changes_nothing, toy(mix=mix_of_padding)),
    (checks.check_padding_changes_nothing, toy(mix=mix_of_bias, accepts_bias=True)),
    (checks.check_padding_changes_nothing, mixing(lambda layer, v, padding: v / v.shape[1])),
    (checks.check_padding_changes_nothing, mixing(lambda layer, v, padding: v, accepts_padding=False)),
    (checks.check_padding_changes_nothing, toy(mix=mean_of_samples, accepts_padding=False)),
    (checks.check_finite_at_padding, mixing(lambda layer, v, p: v if p is None else v / p.mask[:, :, None])),
    (checks.check_finite_at_padding, mixing(infinite_gradient_at_padding)),
    (checks.check_finite_in_bf16, mixing(lambda layer, v, padding: v / (torch.full_like(v, 1.001) - 1))),
    (checks.check_evaluation_is_deterministic, mixing(lambda layer, v, padding: nn.functional.dropout(v))),
    (checks.check_bias_is_used_iff_accepted, toy(mix=mix_of_bias)),
    (checks.check_bias_is_used_iff_accepted, toy(mix=mix_of_bias, accepts_bias=True)),  # NaN where a row is -inf
    (checks.check_bias_is_used_iff_accepted, toy(accepts_bias=True)),
    (checks.check_checkpoint_holds_everything, DrawsAnew),
    (checks.check_causal_layer_reads_no_later_token, toy(accepts_causal=True)),
    (checks.check_causal_layer_reads_no_later_token, toy(mix=later_gradient, accepts_causal=True)),
    (
        checks.check_causal_layer_reads_no_later_token,
        toy(mix=later_number, accepts_causal=True),
    ),
    (checks.check_causal_layer_reads_no_later_token, BuildsAnyway),
    (checks.check_out_is_called_once, running(lambda layer, y, x: y + layer.out(layer.value(x)))),
    (checks.check_mix_is_all_there_is_without_projections, running(lambda layer, y, x: y * x.sigmoid())),
    (checks.check_mix_is_all_there_is_without_projections, ProjectsAnyway),
    (checks.check_order_matters_iff_declared, mixing(lambda layer, v, padding: v.roll(1, dims=1))),
    (checks.check_order_matters_iff_declared, mixing(lambda layer, v, padding: v, order_sensitive=True)),
    (checks.check_implied_map_gives_the_mix, toy(implied_map=map_of_itself)),
    (checks.check_implied_map_gives_the_mix, toy(mix=mix_of_bias, accepts_bias=True)),
    (checks.check_cost_is_linear_unless_declared, mixing(lambda layer, v, padding: v @ v.mT @ v)),
    (checks.check_cost_is_linear_unless_declared, mixing(lambda layer, v, padding: SquareBackward.apply(v))),
    (checks.check_cost_is_linear_unless_declared, mixing(loop(over=0))),
    (checks.check_cost_is_linear_unless_declared, mixing(loop(over=1))),
    (checks.check_cost_is_linear_unless_declared, mixing(blocks)),
]


@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.__name__)
def test_a_sound_attention_passes(check: Callable[[checks.Factory], None]) -> None:
    check(Sound)


@pytest.mark.parametrize(("check", "toy"), BROKEN, ids=lambda value: value.__name__)
def test_a_broken_attention_is_caught(check: Callable[[checks.Factory], None], toy: type[Attention]) -> None:
    with pytest.raises(AssertionError):
        check(toy)


def test_every_check_was_seen_to_fail() -> None:
    assert {check for check, _ in BROKEN} == set(checks.CHECKS)
