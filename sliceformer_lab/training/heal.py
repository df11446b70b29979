"""A swapped model learns from the original one again, on inputs without labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Inputs = Mapping[str, Tensor]  # arguments of a model of Transformers; attention_mask (B, N) is 1 on real tokens


@dataclass(frozen=True, kw_only=True)
class Healed:
    """How far the outputs were from the targets: mean squared error over the variance of the targets."""

    first: float  # of the first batch, before a step
    last: float  # mean of the last eighth of the batches


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The blocks in the order of the layers: the members of the longest ModuleList that are of one class.

    Raises ValueError for a model without a list of blocks.
    """
    lists = [list(module) for module in model.modules() if isinstance(module, nn.ModuleList)]
    lists = [blocks for blocks in lists if len({type(block) for block in blocks}) == 1]
    if not lists:
        raise ValueError(f"{type(model).__name__} has no list of blocks, one for each layer, to heal")
    return max(lists, key=len)


def heal_layers(
    student: Any, teacher: Any, batches: Iterable[Inputs], layers: Sequence[int], *, lr: float
) -> dict[int, Healed]:
    """Trains each block in `layers` of `student` alone, to give the output of the teacher's block for its input.

    One pass over the batches serves all layers, since none reads another. Both models must take the same mask, that of
    the implementation which a swap sets. Returns the errors of each layer.
    """
    teacher.set_attn_implementation(student.config._attn_implementation)
    teacher.eval()
    originals, blocks = blocks_of(teacher), blocks_of(student)
    optimizers = {index: torch.optim.AdamW(blocks[index].parameters(), lr=lr) for index in layers}
    errors: dict[int, list[float]] = {index: [] for index in layers}
    for inputs in batches:
        calls = _calls(teacher, [originals[index] for index in layers], inputs)
        for index, (args, options, target) in zip(layers, calls, strict=True):
            output = _tensor(blocks[index](*args, **options))
            loss = relative_error(output, target, inputs)
            errors[index].append(_step(optimizers[index], loss))
    return {index: _summary(values) for index, values in errors.items()}


def heal_together(student: Any, teacher: Any, batches: Iterable[Inputs], *, lr: float) -> Healed:
    """Trains all weights of `student` to give the last hidden states of `teacher`."""
    teacher.eval()
    optimizer = torch.optim.AdamW(student.parameters(), lr=lr)
    errors = []
    for inputs in batches:
        with torch.no_grad():
            target = teacher(**inputs).last_hidden_state
        errors.append(_step(optimizer, relative_error(student(**inputs).last_hidden_state, target, inputs)))
    return _summary(errors)


def relative_error(output: Tensor, target: Tensor, inputs: Inputs) -> Tensor:
    """Mean squared error (B, N, C) over the variance of the target, both of real tokens."""
    mask = inputs.get("attention_mask")
    if mask is not None:
        output, target = output[mask.bool()], target[mask.bool()]
    return F.mse_loss(output, target) / target.var()


def _calls(teacher: nn.Module, blocks: Sequence[nn.Module], inputs: Inputs) -> list[tuple[Any, Any, Tensor]]:
    """Arguments, options and output of each block in one forward pass."""
    calls: dict[nn.Module, tuple[Any, Any, Tensor]] = {}

    def note(block: nn.Module, args: Any, options: Any, output: Any) -> None:
        calls[block] = (args, options, _tensor(output))

    handles = [block.register_forward_hook(note, with_kwargs=True) for block in blocks]
    try:
        with torch.no_grad():
            teacher(**inputs)
    finally:
        for handle in handles:
            handle.remove()
    return [calls[block] for block in blocks]


def _tensor(output: Any) -> Tensor:
    """The hidden states among what a block returns."""
    states: Tensor = output[0] if isinstance(output, tuple) else output
    return states


def _step(optimizer: torch.optim.Optimizer, loss: Tensor) -> float:
    optimizer.zero_grad()
    backward: Callable[[], None] = loss.backward
    backward()
    optimizer.step()
    return float(loss.detach())


def _summary(errors: Sequence[float]) -> Healed:
    last = errors[-max(1, len(errors) // 8) :]
    return Healed(first=errors[0], last=sum(last) / len(last))
