"""Theoretical cost of a computation: multiply-adds, and the comparisons and moves of sorting operators.

torch's own counter counts matrix products only; sorts, gathers and Fourier transforms cost nothing in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

aten = torch.ops.aten

_PRODUCTS = {aten.mv, aten.dot}  # products of vectors, which torch's table does not have
_FUSED = {aten._scaled_dot_product_flash_attention_for_cpu}  # nor this one, in torch 2.14
_FOURIER = {aten._fft_c2c, aten._fft_r2c, aten._fft_c2r}
_EXTREMES = {aten.min, aten.max, aten.amin, aten.amax, aten.argmin, aten.argmax}
_PAIRS = {aten.minimum, aten.maximum, aten.fmin, aten.fmax, aten.lt, aten.le, aten.gt, aten.ge}
_READS = {aten.gather, aten.index, aten.index_select, aten.take, aten.embedding, aten.roll, aten.flip}
_WRITES = {aten.scatter, aten.scatter_, aten.index_put, aten.index_put_}
_SHIFT_SORT, _SHIFT_SORT_BACKWARD = "sliceformer_lab::shift_sort", "sliceformer_lab::shift_sort_backward"


@dataclass(frozen=True)
class Cost:
    """Operations of one call, by rules that can be checked by hand."""

    multiply_adds: int = 0  # in products, convolutions and Fourier transforms; elementwise arithmetic counts as 0
    # n log2 n for a sort of n, n log2 k for a top-k, log2(n + 1) to find a place among n, n - 1 for an extreme, 1 for a
    # pair
    comparisons: int = 0
    moves: int = 0  # elements that gather, index, scatter, roll or flip write

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.multiply_adds + other.multiply_adds,
            self.comparisons + other.comparisons,
            self.moves + other.moves,
        )


def count_cost(function: Callable[[], object]) -> Cost:
    """The cost of calling `function` once, as in `count_cost(lambda: model(x))`.

    Works on any device, including the meta device. `shift_sort` has the same cost with every backend. Other code that
    torch does not dispatch, such as compiled kernels, counts as zero, so count the plain path of an operator.
    """
    return count_operations(function)[0]


def count_operations(function: Callable[[], object]) -> tuple[Cost, set[str]]:
    """The cost of a call, and the names of the operations that it dispatches, such as `aten::mm`."""
    counter = _Counter()
    with counter:
        function()
    return counter.cost, counter.names


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sums the cost and collects the names of all operations that are dispatched while it is active."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.cost = Cost()
        self.names: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        out = func(*args, **options)
        self.cost += _cost_of(func.overloadpacket, args, options, out)
        self.names.add(func.name().partition(".")[0])
        return out


def _cost_of(operation: Any, args: tuple[Any, ...], options: dict[str, Any], out: Any) -> Cost:
    if operation in flop_registry:
        return Cost(multiply_adds=int(flop_registry[operation](*args, **options, out_val=out)) // 2)
    if operation in _FUSED:
        flops = sdpa_flop_count(*(tensor.shape for tensor in args[:3]))  # type: ignore[no-untyped-call]
        return Cost(multiply_adds=int(flops) // 2)
    if operation in _PRODUCTS:
        return Cost(multiply_adds=args[0].numel())
    if operation in _FOURIER:
        return Cost(multiply_adds=_count_fourier(operation, args, out))
    if operation in _READS:
        return Cost(moves=out.numel())
    if operation in _WRITES:
        return Cost(moves=args[2].numel())  # the index of a scatter, the values of an index_put
    if operation._qualified_op_name == _SHIFT_SORT:
        return _cost_of_shift_sort(args[0], group_size=args[4])
    if operation._qualified_op_name == _SHIFT_SORT_BACKWARD:
        return Cost(moves=out.numel())
    return Cost(comparisons=_count_comparisons(operation, args, options, out))


def _cost_of_shift_sort(v: Tensor, group_size: int) -> Cost:
    """One sort per window, with the last window padded, and one move per value."""
    batch, num_tokens, channels = v.shape
    slots = -(-num_tokens // group_size) * group_size
    per_slot = 0.5 if group_size == 2 else math.log2(group_size)  # a pair is one comparison
    return Cost(comparisons=round(batch * channels * slots * per_slot), moves=v.numel())


def _count_comparisons(operation: Any, args: tuple[Any, ...], options: dict[str, Any], out: Any) -> int:
    if operation is aten.sort:
        size = args[0].shape[options.get("dim", args[1] if len(args) > 1 else -1)]
        return round(int(args[0].numel()) * math.log2(max(size, 1)))
    if operation is aten.searchsorted:  # by bisection: n keys have n + 1 places
        return round(int(out.numel()) * math.log2(args[0].shape[-1] + 1))
    if operation is aten.topk:
        return round(int(args[0].numel()) * max(1.0, math.log2(max(args[1], 1))))
    if operation in _EXTREMES:
        kept = out[0] if isinstance(out, tuple) else out
        return int(args[0].numel() - kept.numel())
    return int(out.numel()) if operation in _PAIRS else 0


def _count_fourier(operation: Any, args: tuple[Any, ...], out: Tensor) -> int:
    """Half of the usual 5 n log2 n operations for a complex transform of n values, a quarter for a real one."""
    whole = out if operation is aten._fft_c2r else args[0]
    size = math.prod(whole.shape[dim] for dim in args[1])
    share = 2.5 if operation is aten._fft_c2c else 1.25
    return round(share * whole.numel() * math.log2(size))
