"""`shift_sort` in operators that every export format has, for inference outside this package."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

NETWORK_SIZES = (2, 4, 8, 16)  # of windows that are exported as a sorting network; 16 take ten steps


def decomposed(
    v: Tensor,
    steps: Tensor | None,
    lengths: Tensor | None,
    descending: Tensor | None,
    group_size: int,
    reference: bool,
    backend: str | None,
    save: bool,
    *,
    longest_network: int = 0,
) -> tuple[Tensor, Tensor]:
    """The custom operator behind `shift_sort` in plain operators: (B, N, C) -> (B, N, C), and nothing saved.

    Pairs are a minimum and a maximum, windows of 4, 8 and 16 a sorting network, others one sort; for a fixed N, every
    window of at most `longest_network` tokens is a network too. Equal to the operator for values without NaN.
    """
    del backend, save
    x = v.mT  # (B, C, N)
    num_tokens = x.shape[2]
    slots = torch.arange(num_tokens, device=v.device).expand(x.shape)
    source = slots
    count = num_tokens if lengths is None else lengths[:, None, None]
    padding = None if lengths is None else slots >= lengths[:, None, None]
    if steps is not None:
        source = (slots + (count - steps[:, None] % count)) % count  # of no negative number: runtimes differ there
        source = source if padding is None else torch.where(padding, slots, source)
    down = None
    if descending is not None:
        down = descending.T.repeat_interleave(group_size if len(descending) > 1 else num_tokens, dim=1)[:, :num_tokens]
    is_network = isinstance(num_tokens, int) and 1 < group_size <= longest_network
    moved = x if steps is None else x.gather(2, source)
    if group_size == 2 and not reference and not is_network:
        moved = _sort_pairs(moved, slots, down, count)
    elif group_size != 1:
        keys = moved if down is None else torch.where(down, -moved, moved)
        keys = keys if padding is None else keys.masked_fill(padding, torch.inf)
        if reference:
            source = _sort_windows(keys, group_size, source)
            moved = x.gather(2, source.gather(2, source[:, :1].argsort(dim=2).expand_as(source)))
        else:
            moved = _sort_padded(keys, group_size) if is_network else _sort_windows(keys, group_size)
            moved = moved if down is None else torch.where(down, -moved, moved)
    moved = moved if padding is None else moved.masked_fill(padding, 0.0)
    return moved.mT.contiguous(), v.new_empty(0, dtype=torch.uint8)


def slice_shifts(program: torch.export.ExportedProgram) -> None:
    """Writes shifts by steps that a model holds as a buffer as slices and concatenations, in place. N must be fixed.

    Shifts by computed steps, of padded samples, and those that channel 0 then orders become a gather.
    """
    buffers, values = program.graph_signature.inputs_to_buffers, program.state_dict | program.constants
    for node in program.graph.find_nodes(op="call_function", target=torch.ops.sliceformer_lab.shift_sort.default):
        v, steps, lengths, *_, reference, _, _ = node.args
        if steps is not None and steps.target == torch.ops.aten.to.dtype:  # the operator's cast of the buffer
            steps = steps.args[0]
        if steps is None or steps.name not in buffers or lengths is not None or reference:
            continue
        with program.graph.inserting_before(node):
            node.update_arg(0, _slice_shift(program.graph, v, values[buffers[steps.name]].tolist()))
            node.update_arg(1, None)
    program.graph_module.recompile()


def _slice_shift(graph: Graph, v: Node, steps: list[int]) -> Node:
    """The values (B, N, C) with channel c rolled by steps[c]."""
    aten, call = torch.ops.aten, graph.call_function
    num_tokens = v.meta["val"].shape[1]
    channels, rolled = call(aten.transpose.int, (v, 1, 2)), []
    for c, step in enumerate(steps):
        channel = call(aten.slice.Tensor, (channels, 1, c, c + 1))
        start = num_tokens - step % num_tokens  # of the tokens that come first
        parts = [call(aten.slice.Tensor, (channel, 2, *ends)) for ends in ((start, num_tokens), (0, start))]
        rolled.append(call(aten.cat.default, (parts, 2)) if step % num_tokens else channel)
    return call(aten.transpose.int, (call(aten.cat.default, (rolled, 1)), 1, 2))


def _sort_pairs(x: Tensor, slots: Tensor, down: Tensor | None, count: Tensor | int) -> Tensor:
    """Each pair of the first `count` slots in order; the last one may be alone. (B, C, N) -> (B, C, N)."""
    second = slots % 2 == 1
    other = slots + 1 - 2 * (slots % 2)
    partner = x.gather(2, torch.where(other < count, other, slots))
    takes_larger = second if down is None else second ^ down
    return torch.where(takes_larger, torch.maximum(x, partner), torch.minimum(x, partner))


def _sort_windows(keys: Tensor, size: int, source: Tensor | None = None) -> Tensor:
    """Keys in order inside each window of `size` slots, or `source` in their order. (B, C, N) -> (B, C, N).

    Only `source` needs a stable order, which not every format has: equal keys, and infinity beside padding, are alike.
    """
    num_tokens = keys.shape[2]
    is_whole = statically_known_true(size == num_tokens)  # without a guard that excludes this length
    if not is_whole:
        num_windows = num_tokens // size + 1  # never 1, which would be taken as fixed
        slots = torch.arange(num_windows * size, device=keys.device)  # the last ones are beyond the tokens
        token = slots.clamp(max=num_tokens - 1)  # read, and not padded or cut: their sizes would fix the length
        keys = torch.unflatten(keys[:, :, token].masked_fill(slots >= num_tokens, torch.inf), 2, (num_windows, size))
        source = None if source is None else torch.unflatten(source[:, :, token], 2, (num_windows, size))
    if source is not None:
        moved = source.gather(-1, keys.sort(dim=-1, stable=True).indices)
    elif not is_whole and size in NETWORK_SIZES:
        moved = _sort_by_network(keys)
    else:
        moved = keys.sort(dim=-1).values
    return moved if is_whole else moved.flatten(2)[:, :, torch.arange(num_tokens, device=keys.device)]


def _sort_padded(keys: Tensor, size: int) -> Tensor:
    """Keys in order inside each window of `size` slots, as a network over a fixed length. (B, C, N) -> (B, C, N)."""
    num_tokens = keys.shape[2]
    windows = torch.unflatten(F.pad(keys, (0, -num_tokens % size), value=torch.inf), 2, (-1, size))
    width = 1 << (size - 1).bit_length()
    return _sort_by_network(F.pad(windows, (0, width - size), value=torch.inf))[..., :size].flatten(2)[..., :num_tokens]


def _sort_by_network(x: Tensor) -> Tensor:
    """Batcher's odd-even network over the last dimension, a power of two: minima and maxima alone. Same shape.

    Every comparison puts the larger value second, so slices and concatenations are all that moves values.
    """
    moved = x.movedim(1, -1)  # (B, windows, width, C): a slice takes whole rows of channels
    rows, (width, channels) = moved, moved.shape[2:]
    for doubling in range(1, width.bit_length()):
        run = 1 << doubling  # its halves are in order
        rows = _compare(rows.reshape(-1, run, channels), run // 2)
        for gap in (run >> part for part in range(2, doubling + 1)):
            inner = _compare(rows[:, gap:-gap].reshape(-1, 2 * gap, channels), gap).reshape(-1, run - 2 * gap, channels)
            rows = torch.cat([rows[:, :gap], inner, rows[:, -gap:]], dim=1)
    return rows.reshape(moved.shape).movedim(-1, 1)


def _compare(rows: Tensor, gap: int) -> Tensor:
    """The smaller values of slots i and i + gap first. (rows, 2 gap, C) -> (rows, 2 gap, C)."""
    first, second = rows[:, :gap], rows[:, gap:]
    return torch.cat([torch.minimum(first, second), torch.maximum(first, second)], dim=1)
