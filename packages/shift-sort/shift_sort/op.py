"""`shift_sort` as one operator of torch, for all backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, TypeVarTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .backend import Case, choose, forced_backend, load_backend
from .reference import padded_slots, source_index

_NAMESPACE = __name__.partition(".")[0]  # shift_sort, or sliceformer_lab, which contains this package as `permute`
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_Arguments = tuple[Tensor | None, Tensor | None, Tensor | None, int, bool]  # those of `_case`
_Given = tuple[*_Arguments, str | None, bool]  # those of `_forward` after the values
_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


def shift_sort(
    v: Tensor,
    steps: Tensor | None,
    *,
    group_size: int | None,
    lengths: Tensor | None = None,
    descending: bool | Tensor = False,
    reference: bool = False,
) -> Tensor:
    """Roll each channel along the tokens, then sort it inside windows. (B, N, C) -> (B, N, C).

    With n real tokens (`lengths` (B,), 1 to N; None means N), slot i of channel c first takes token (i - steps[c]) mod
    n, with `steps` (C,) non-negative. Then each window of `group_size` slots is sorted (None: all slots, so the steps
    have no effect; 1: shift only; the last window may be short). Padding slots become 0.
    `descending` is one bool, (C,), or (K, C) for each window. With `reference`, channel 0 is unchanged and every other
    channel takes the rank order of channel 0 in each window.

    Values are moved, never computed, so all float types are exact; ties, NaN, inf and gradients are those of
    `torch.sort(stable=True)`. The operator has second derivatives and compiles without a graph break; `torch.func` and
    forward-mode derivatives run the reference. Source: CSP, section 3.2; Sliceformer, equation (4).
    Raises ValueError if group_size is below 1, if shapes do not fit, or if the forced backend cannot take the case.
    """
    arguments = _normalised(v, steps, lengths, descending, group_size, reference)
    if v.numel() == 0:
        return v.clone()
    if _in_transform():
        source = _real_source(v, _case(*arguments))
        return v.gather(1, source.clamp(min=0)).masked_fill(source < 0, 0.0)
    save = v.requires_grad and torch.is_grad_enabled()
    return _shift_sort(v, *arguments, forced_backend(), save)[0]


def shift_sort_index(
    v: Tensor,
    steps: Tensor | None,
    *,
    group_size: int | None,
    lengths: Tensor | None = None,
    descending: bool | Tensor = False,
    reference: bool = False,
) -> Tensor:
    """The token that each output slot of `shift_sort` is read from: (B, N, C) -> (B, N, C) int64, -1 on padding."""
    arguments = _normalised(v, steps, lengths, descending, group_size, reference)
    if v.numel() == 0:
        return v.new_empty(v.shape, dtype=torch.int64)
    return _real_source(v, _case(*arguments))


def _real_source(v: Tensor, case: Case) -> Tensor:
    source = source_index(v.detach(), case)
    return source if case.lengths is None else source.masked_fill(padded_slots(v, case.lengths), -1)


def _in_transform() -> bool:
    """Whether torch.func or forward mode is active: they have no derivatives of custom operators."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def _normalised(
    v: Tensor,
    steps: Tensor | None,
    lengths: Tensor | None,
    descending: bool | Tensor,
    group_size: int | None,
    reference: bool,
) -> _Arguments:
    """The arguments of a call in one form. The checks keep a kernel within its arrays."""
    shape = v.shape
    if v.dtype not in _FLOATS:
        raise ValueError(f"values must be float64, float32, float16 or bfloat16, got {v.dtype}")
    if group_size is not None and group_size < 1:
        raise ValueError(f"group_size must be at least 1 (shift only) or None (complete sort), got {group_size}")
    if steps is not None and steps.shape != shape[2:]:
        raise ValueError(f"steps must be one per channel, ({shape[2]},), got {tuple(steps.shape)}")
    if lengths is not None and lengths.shape != shape[:1]:
        raise ValueError(f"lengths must be one per sample, ({shape[0]},), got {tuple(lengths.shape)}")
    size = shape[1] if group_size is None or group_size > shape[1] else group_size
    steps = None if steps is None or group_size is None else steps.long()
    if steps is not None and reference:
        steps = steps * (torch.arange(steps.shape[0], device=steps.device) > 0)
    lengths = None if lengths is None else lengths.long()
    return steps, lengths, _directions(v, size, descending), size, reference


def _directions(v: Tensor, size: int, descending: bool | Tensor) -> Tensor | None:
    """`descending` as (1, C) or (K, C); None if every window is sorted upwards."""
    if descending is False:
        return None
    if descending is True:  # filled there: a copy from here would wait for a GPU
        return torch.ones(1, v.shape[2], dtype=torch.bool, device=v.device)
    directions = torch.as_tensor(descending, dtype=torch.bool, device=v.device)
    if directions.dim() < 2:
        return directions.expand(1, v.shape[2])
    num_windows = -(-v.shape[1] // max(size, 1))
    if directions.shape[0] != num_windows:
        raise ValueError(f"descending has {directions.shape[0]} windows, but {v.shape[1]} tokens make {num_windows}")
    return directions.expand(num_windows, v.shape[2])


def _case(
    steps: Tensor | None, lengths: Tensor | None, descending: Tensor | None, group_size: int, reference: bool
) -> Case:
    return Case(
        steps=None if steps is None else steps.contiguous(),
        group_size=group_size,
        lengths=None if lengths is None else lengths.contiguous(),
        descending=None if descending is None else descending.contiguous(),
        reference=reference,
    )


def _forward(
    v: Tensor,
    steps: Tensor | None,
    lengths: Tensor | None,
    descending: Tensor | None,
    group_size: int,
    reference: bool,
    backend: str | None,
    save: bool,
) -> tuple[Tensor, Tensor]:
    """The permuted values, and the saved tensor for the gradient."""
    case = _case(steps, lengths, descending, group_size, reference)
    return choose(v, case, backend).forward(v.contiguous(), case, save)


def _backward(
    grad: Tensor,
    saved: Tensor,
    steps: Tensor | None,
    lengths: Tensor | None,
    descending: Tensor | None,
    group_size: int,
    reference: bool,
    backend: str | None,
) -> Tensor:
    """Gradient of the values, by the backend that wrote `saved`: if not named, that which is chosen for their type."""
    case = _case(steps, lengths, descending, group_size, reference)
    writer = choose(grad, case, None) if backend is None else load_backend(backend)
    return writer.backward(grad.contiguous(), saved, case)


def _fake_forward(v: Tensor, *given: *_Given) -> tuple[Tensor, Tensor]:
    case, backend, save = _case(*given[:5]), *given[5:]
    shape, dtype = choose(v, case, backend).saved_layout(v, case) if save else ((0,), torch.uint8)
    return v.new_empty(v.shape), v.new_empty(shape, dtype=dtype)


def _fake_backward(grad: Tensor, *_: object) -> Tensor:
    return grad.new_empty(grad.shape)


class _ShiftSort(torch.autograd.Function):
    """`shift_sort` of values that need a gradient."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, *given: *_Given) -> tuple[Tensor, Tensor]:
        moved, saved = _shift_sort(v, *given)
        ctx.set_materialize_grads(False)  # for `saved` they would be zeros, as many as it has numbers
        ctx.save_for_backward(saved, *given[:3])
        ctx.options = given[3:6]
        return moved, saved

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        of_values = None if grad is None else _shift_sort_backward(grad, *ctx.saved_tensors, *ctx.options)
        return of_values, *[None] * 7


class _ShiftSortBackward(torch.autograd.Function):
    """The gradient of `shift_sort` where it needs a gradient itself."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor, saved: Tensor, *given: *tuple[*_Arguments, str | None]) -> Tensor:
        ctx.save_for_backward(saved, *given[:3])
        ctx.options = given[3:]
        return _shift_sort_backward(grad, saved, *given)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """The permutation applied to `grad`; the gradient of the slot numbers gives the target of every token."""
        saved, steps, lengths, descending = ctx.saved_tensors
        group_size, reference, forced = ctx.options
        arguments = (steps, lengths, descending, group_size, reference)
        backend = choose(grad, _case(*arguments), forced).name  # not for float32, the type of the slots
        slots = torch.arange(grad.shape[1], device=grad.device)[:, None].expand(grad.shape)
        target = _shift_sort_backward(slots.float(), saved, *arguments, backend).long()
        if lengths is not None:
            padding = padded_slots(grad, lengths)
            target, grad = slots.where(padding, target), grad.masked_fill(padding, 0.0)
        return torch.zeros_like(grad).scatter(1, target, grad), *[None] * 7


def _define(
    name: str, run: Callable[[Tensor, *_Ts], _T], fake: Callable[..., _T], gradient: type[torch.autograd.Function]
) -> Callable[[Tensor, *_Ts], _T]:
    """Makes an operator of torch from what it does, what it does with fake tensors, and its gradient.

    Not with torch.library.custom_op and register_autograd, whose wrappers take longer than a small kernel. A call
    that nothing traces enters torch's dispatcher once, below autograd, where modes and profilers see it.
    """

    def differentiable(values: Tensor, *args: *_Ts) -> _T:
        if values.requires_grad and torch.is_grad_enabled():
            result: _T = gradient.apply(values, *args)
            return result
        with torch._C._AutoDispatchBelowAutograd():  # reached from `gradient` as well, where grad mode is off
            return operator(values, *args)

    def call(values: Tensor, *args: *_Ts) -> _T:
        is_traced = torch.compiler.is_compiling() or torch._C._is_tracing()
        return (operator if is_traced else differentiable)(values, *args)

    _library.define(name + torch.library.infer_schema(run, mutates_args=()), tags=(torch.Tag.pt2_compliant_tag,))
    _library.impl(name, run, "CompositeExplicitAutograd")
    _library.impl(name, differentiable, "Autograd")
    torch.library.register_fake(f"{_NAMESPACE}::{name}", fake, lib=_library)
    operator: Callable[[Tensor, *_Ts], _T] = getattr(getattr(torch.ops, _NAMESPACE), name).default
    return call


_library: Any = torch.library.Library(_NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]
_shift_sort = _define("shift_sort", _forward, _fake_forward, _ShiftSort)
_shift_sort_backward = _define("shift_sort_backward", _backward, _fake_backward, _ShiftSortBackward)
