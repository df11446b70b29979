"""The contract of an attention, one check a function; each raises AssertionError where a layer breaks its rule.

The rule is the first line of the check's docstring. A check takes a factory, so that the same code runs on every
option of conf/attention, on a user's own class (`sliceformer-lab check attention=NAME`) and on broken toys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError, gradcheck
from torch.func import functional_call
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sliceformer_lab.attention import Attention, LayerSpec, build_layer
from sliceformer_lab.attention.base import BlockInputs
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.schema import ConfigError, Node

Factory = Callable[[LayerSpec], Attention]
DIM, HEADS, MAX_LEN = 8, 2, 16
PADDING_VALUE = 1e3
_device: ContextVar[str] = ContextVar("device", default="cpu")  # of the layers and of their inputs


def make_spec(**changes: Any) -> LayerSpec:
    return LayerSpec(**({"dim": DIM, "num_heads": HEADS, "depth": 4, "max_len": MAX_LEN} | changes))


def build(make: Factory, seed: int = 0, **changes: Any) -> Attention:
    torch.manual_seed(seed)
    return make(make_spec(**changes)).to(_device.get()).eval()


def tokens(num_tokens: int, batch: int = 2, seed: int = 1) -> Tensor:
    return torch.randn(batch, num_tokens, DIM, generator=torch.Generator().manual_seed(seed)).to(_device.get())


def padded(samples: Sequence[Tensor], num_tokens: int) -> tuple[Tensor, Padding]:
    """Samples (n, C) of different lengths as (B, num_tokens, C) with garbage behind them, and their padding."""
    x = samples[0].new_full((len(samples), num_tokens, DIM), PADDING_VALUE)
    for row, sample in zip(x, samples, strict=True):
        row[: len(sample)] = sample
    lengths = torch.tensor([len(sample) for sample in samples], device=x.device)
    return x, Padding(lengths, torch.arange(num_tokens, device=x.device) < lengths[:, None])


def random_bias(batch: int) -> Tensor:
    return torch.randn(batch, HEADS, MAX_LEN, MAX_LEN, generator=torch.Generator().manual_seed(2)).to(_device.get())


def require(holds: bool | Tensor, message: str) -> None:
    """Raises AssertionError, as `torch.testing.assert_close` does."""
    if not holds:
        raise AssertionError(message)


def assert_finite(**tensors: Tensor | None) -> None:
    for name, tensor in tensors.items():
        require(tensor is not None and bool(tensor.isfinite().all()), f"{name} is None or not finite")


def gradients(layer: Attention) -> dict[str, Tensor | None]:
    return {f"gradient_of_{name.replace('.', '_')}": p.grad for name, p in layer.named_parameters()}


def check_declares_complexity_and_source(make: Factory) -> None:
    """The class says its complexity and its source."""
    layer = build(make)
    require(bool(getattr(layer, "complexity", "")), "complexity is not declared")
    require(bool(getattr(layer, "source", "")), "source is not declared")


def check_lengths(make: Factory) -> None:
    """The output has the shape of the input, for one token, max_len, what no block size divides, and no sample."""
    require(build(make)(tokens(5, batch=0)).shape == (0, 5, DIM), "a batch without samples has another shape")
    for num_tokens, max_len in ((1, 1), (13, 13), (1, MAX_LEN), (5, MAX_LEN), (12, MAX_LEN), (MAX_LEN, MAX_LEN)):
        out, expected = build(make, max_len=max_len)(tokens(num_tokens)), (2, num_tokens, DIM)
        require(out.shape == expected, f"the output has the shape {tuple(out.shape)} in place of {expected}")
        assert_finite(out=out)


def check_gradients_reach_everything(make: Factory) -> None:
    """Gradients are finite, and reach the input and every parameter."""
    reached: dict[str, bool] = {}
    for seed in range(3):
        layer, x = build(make, seed).train(), tokens(MAX_LEN, seed=seed).requires_grad_()
        (layer(x) * tokens(MAX_LEN, seed=seed + 10)).sum().backward()
        found = {"gradient_of_x": x.grad} | gradients(layer)
        assert_finite(**found)
        reached |= {name: reached.get(name, False) or bool(g.any()) for name, g in found.items() if g is not None}
    require(all(reached.values()), f"always zero: {', '.join(name for name, ok in reached.items() if not ok)}")


def check_derivatives(make: Factory) -> None:
    """In float64, derivatives are those of finite differences, within 2 %."""
    layer, x = build(make, max_len=6).double(), tokens(6).double().requires_grad_()
    names, values = zip(*layer.named_parameters(), strict=True)

    def run(x: Tensor, *values: Tensor) -> Any:
        torch.manual_seed(0)  # of an attention that is random in evaluation
        return functional_call(layer, dict(zip(names, values, strict=True)), (x,))

    try:  # steps that float32 rounds off; published gradients may leave out what changes a weight by less than 1e-4
        gradcheck(run, (x, *values), eps=1e-8, atol=1e-4, rtol=0.02, nondet_tol=1e-8, fast_mode=True)
    except GradcheckError as error:
        found = " ".join(str(error).split("\n\n")[0].split())
        raise AssertionError(f"{found}; a cast of float64 to float32 does this too") from error


def check_padding_changes_nothing(make: Factory) -> None:
    """What a real token receives does not depend on padding.

    Real rows and their gradients equal those of the sample alone, with padding or, if refused, without; padding
    receives no gradient from them.
    """
    layer = build(make)
    samples = [tokens(n, batch=1, seed=n)[0] for n in (1, 5, 9, 12)]
    if not layer.accepts_padding:
        assert_close(layer(tokens(MAX_LEN))[:1], layer(tokens(MAX_LEN)[:1]))
        return _assert_refuses(layer, *padded(samples, MAX_LEN))
    for bias in (None, random_bias(len(samples))) if layer.accepts_bias else (None,):
        for num_tokens in (12, MAX_LEN):
            _assert_padding_changes_nothing(layer, samples, num_tokens, bias)
    return None


def _assert_padding_changes_nothing(
    layer: Attention, samples: Sequence[Tensor], num_tokens: int, bias: Tensor | None
) -> None:
    def run(x: Tensor, padding: Padding | None, rows: slice) -> tuple[Tensor, Tensor]:
        cut = None if bias is None else bias[rows, :, : x.shape[1], : x.shape[1]]
        out = layer(x.requires_grad_(), padding, cut)
        real = out.detach() if padding is None else out.detach() * padding.mask[:, :, None]
        return out, torch.autograd.grad(out, x, real)[0]

    x, padding = padded(samples, num_tokens)
    out, gradient = run(x, padding, slice(None))
    require(not gradient[~padding.mask].any(), "real tokens depend on padding or other samples")
    for i, sample in enumerate(samples):
        expected, expected_gradient = run(sample[None].clone(), None, slice(i, i + 1))
        assert_close(out[i, : len(sample)], expected[0])
        assert_close(gradient[i, : len(sample)], expected_gradient[0], atol=1e-4, rtol=1e-4)


def _assert_refuses(layer: Attention, x: Tensor, padding: Padding) -> None:
    try:
        layer(x, padding)
    except ValueError:
        return
    raise AssertionError("padding is neither accepted nor refused with a ValueError")


def check_finite_at_padding(make: Factory) -> None:
    """Outputs and gradients are finite where a batch is padded."""
    layer = build(make).train()
    if layer.accepts_padding:
        x, padding = padded([tokens(n, batch=1)[0] for n in (1, 5, 12)], MAX_LEN)
        out = layer(x.requires_grad_(), padding)
        out.sum().backward()
        assert_finite(out=out, gradient_of_x=x.grad, **gradients(layer))


def check_finite_in_bf16(make: Factory) -> None:
    """Outputs and gradients are finite in bfloat16."""
    layer = build(make).train()
    x, padding = padded([tokens(n, batch=1)[0] for n in (MAX_LEN, 5)], MAX_LEN)
    with torch.autocast(_device.get(), dtype=torch.bfloat16):
        out = layer(x.requires_grad_(), padding if layer.accepts_padding else None)
    out.float().sum().backward()
    assert_finite(out=out, gradient_of_x=x.grad, **gradients(layer))


def check_evaluation_is_deterministic(make: Factory) -> None:
    """In evaluation mode, the same input gives the same output."""
    layer, x = build(make, attention_dropout=0.5), tokens(MAX_LEN)
    assert_close(layer(x), layer(x), rtol=0, atol=0)


def check_bias_is_used_iff_accepted(make: Factory) -> None:
    """A pairwise bias is used if accepts_bias is true, and ignored if it is false."""
    layer, x, bias = build(make), tokens(MAX_LEN), random_bias(2)
    used = not torch.allclose(layer(x), layer(x, bias=bias))
    message = f"accepts_bias is {layer.accepts_bias}, but a bias changes {'the output' if used else 'nothing'}"
    require(used == layer.accepts_bias, message)
    if layer.accepts_bias:
        bias[:, :, :, 3] = bias[:, :, 5] = -torch.inf  # a key that nobody sees, a query that sees nothing
        out = layer(x.requires_grad_(), bias=bias.requires_grad_())
        out.sum().backward()
        assert_finite(out=out, gradient_of_x=x.grad, gradient_of_bias=bias.grad)


def check_checkpoint_holds_everything(make: Factory) -> None:
    """A new layer with the weights of another gives the same output."""
    layer, fresh = build(make, seed=0), build(make, seed=7)
    fresh.load_state_dict(layer.state_dict())
    assert_close(fresh(tokens(MAX_LEN)), layer(tokens(MAX_LEN)), rtol=0, atol=0)


def check_out_is_called_once(make: Factory) -> None:
    """The output projection is called once, with (B, N, H*D)."""
    layer = build(make)
    seen: list[tuple[int, ...]] = []
    layer.out.register_forward_pre_hook(lambda _, inputs: seen.append(tuple(inputs[0].shape)))
    layer(tokens(MAX_LEN))
    require(seen == [(2, MAX_LEN, layer.width)], f"out was called with {seen}")


def check_mix_is_all_there_is_without_projections(make: Factory) -> None:
    """Without projections, the layer is its mix, or is refused."""
    try:
        layer = build(make, project=False)
    except (ValueError, ConfigError):
        return
    require(layer.mixable, "mixable is False, but a layer without projections was built")
    v = tokens(MAX_LEN).repeat(1, 1, layer.width // DIM)
    require(layer(v).shape == (2, MAX_LEN, layer.width), f"mix returned the shape {tuple(layer(v).shape)}")
    assert_close(layer(v), layer.mix(v, v, v))


def check_order_matters_iff_declared(make: Factory) -> None:
    """The order of the tokens matters if order_sensitive is true, and only then."""
    layer, x = build(make), tokens(MAX_LEN)
    order = torch.randperm(MAX_LEN, generator=torch.Generator().manual_seed(3))
    equivariant = torch.allclose(layer(x[:, order]), layer(x)[:, order], atol=1e-5)
    effect = "only reorders the output" if equivariant else "changes the output"
    message = f"order_sensitive is {layer.order_sensitive}, but another order of the tokens {effect}"
    require(equivariant != layer.order_sensitive, message)


def check_implied_map_gives_the_mix(make: Factory) -> None:
    """The maps of implied_map, if there are any, give the output of mix."""
    layer = build(make)
    with_garbage, padding = padded([tokens(n, batch=1)[0] for n in (MAX_LEN, 5)], MAX_LEN)
    for pad in (None, padding) if layer.accepts_padding else (None,):
        x = tokens(MAX_LEN) if pad is None else with_garbage  # as real tokens, garbage would overflow the tolerance
        for bias in (None, random_bias(2)) if layer.accepts_bias else (None,):
            maps = layer.implied_map(x, pad, bias)
            if maps is None:
                return
            require(maps.shape[1] in (HEADS, layer.width), f"implied_map returned the shape {tuple(maps.shape)}")
            per_channel = maps.repeat_interleave(layer.width // maps.shape[1], dim=1)  # (B, C, N, N)
            v, q, k = layer.project(x)
            real = torch.ones_like(padding.mask) if pad is None else pad.mask
            expected = torch.einsum("bcij,bjc->bic", per_channel, v.where(real[:, :, None], 0))
            mixed = layer.mix(v, q, k, BlockInputs(pad, bias))
            assert_close(mixed[real], expected[real], atol=2e-4, rtol=1e-4)


def check_causal_layer_reads_no_later_token(make: Factory) -> None:
    """A causal layer reads no later token, or is refused.

    No output depends on the value or the presence of a later token, and no gradient flows to it.
    """
    try:
        layer = build(make, causal=True)
    except (ValueError, ConfigError):
        return
    require(layer.accepts_causal, "accepts_causal is False, but a causal layer was built")
    x, changed = tokens(MAX_LEN).requires_grad_(), tokens(MAX_LEN, seed=3)
    out = layer(x)
    for last in (0, 1, 6, 11, MAX_LEN - 2):
        start = slice(0, last + 1)
        other = torch.cat([x[:, start], changed[:, last + 1 :]], dim=1)
        for later, cut in (("the values", layer(other)[:, start]), ("the number", layer(x[:, start]))):
            require(torch.allclose(cut, out[:, start], atol=1e-5), f"{later} of the tokens after {last} matter")
        (gradient,) = torch.autograd.grad((out * changed)[:, start].sum(), x, retain_graph=True)
        require(not gradient[:, last + 1 :].any(), f"a gradient of token {last} reaches a later one")


class CallCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operations that reach the dispatcher and the bytes of the largest tensor they return."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations, self.largest = 0, 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.operations += 1
        made = [leaf.untyped_storage().nbytes() for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.largest = max([self.largest, *made])
        return result


def check_cost_is_linear_unless_declared(make: Factory) -> None:
    """The cost grows with N, not N^2, unless complexity names N^2.

    No N x N tensor, and no Python loop over tokens, blocks or samples, forward and backward.
    """
    layer = build(make)
    if "N^2" in getattr(layer, "complexity", ""):
        return
    for ragged in (False, True) if layer.accepts_padding else (False,):
        small, long, wide = (_measure_cost(make, *size, ragged) for size in ((64, 2), (256, 2), (64, 8)))
        grown = f"4 x the tokens: the largest tensor grows from {small.largest} to {long.largest} bytes"
        require(long.largest <= 5 * small.largest, grown)
        for size, other, more in (("tokens", long, 8), ("samples", wide, 0)):  # one padded block differs by 6 on a GPU
            message = f"4 x the {size}: {small.operations} torch operations become {other.operations}; is there a loop?"
            require(other.operations <= small.operations + more, message)


def _measure_cost(make: Factory, num_tokens: int, batch: int, ragged: bool) -> CallCounter:
    layer, x = build(make, max_len=num_tokens), tokens(num_tokens, batch).requires_grad_()
    lengths = torch.tensor([num_tokens, num_tokens // 2 + 1] * (batch // 2), device=x.device)
    padding = Padding.from_lengths(lengths, num_tokens) if ragged else None
    with CallCounter() as cost:
        layer(x, padding).sum().backward()
    return cost


def rule_of(check: Callable[[Factory], None]) -> str:
    """The sentence of the rule that a check tests: its first line."""
    return str(check.__doc__).splitlines()[0]


def broken_rule(check: Callable[[Factory], None], attention: Node, device: str = "cpu") -> str | None:
    """What the option breaks of a rule on a device, in its first or its fourth layer; None if it keeps the rule.

    Published behaviour exists for comparison: its handling of padding is exempt from the rules on padding, and random
    evaluation from the rules that compare two passes.
    """
    before = _device.set(device)
    try:
        return _broken_rule(check, attention)
    finally:
        _device.reset(before)


def _broken_rule(check: Callable[[Factory], None], attention: Node) -> str | None:
    for index in (0, 3):
        made: list[Attention] = []

        def make(spec: LayerSpec, index: int = index, made: list[Attention] = made) -> Attention:
            made.append(build_layer(attention, replace(spec, index=index)))
            return made[-1]

        try:
            check(make)
        except Exception as error:
            if made and _is_exempt(made[-1], check):
                continue
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            return f"layer {index + 1}: {kind}{error}"
    return None


def _is_exempt(layer: Attention, check: Callable[[Factory], None]) -> bool:
    if layer.reads_padding:
        return check in RULES_ON_PADDING
    return layer.random_evaluation and check in RULES_ON_TWO_PASSES


RULES_ON_PADDING = (check_padding_changes_nothing, check_implied_map_gives_the_mix)  # whose maps read real tokens only
RULES_ON_TWO_PASSES = (
    *(check_padding_changes_nothing, check_evaluation_is_deterministic),
    *(check_checkpoint_holds_everything, check_order_matters_iff_declared),
)
CHECKS: tuple[Callable[[Factory], None], ...] = tuple(
    value for name, value in list(globals().items()) if name.startswith("check_")
)
