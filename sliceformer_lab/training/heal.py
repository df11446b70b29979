"""A swapped model learns from the original one again, on inputs without labels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Inputs = Mapping[str, Tensor] | Tensor  # arguments of a model of Transformers with attention_mask (B, N), or images


class Healing(ABC):
    """A student that learns the outputs of a teacher, a batch a step; the rate falls linearly to 0 over `num_steps`."""

    def __init__(self, student: Any, teacher: Any, *, lr: float, num_steps: int) -> None:
        self.student, self.teacher = student, teacher.eval()
        if implementation := getattr(getattr(student, "config", None), "_attn_implementation", None):
            teacher.set_attn_implementation(implementation)  # so that both take the same mask
        self.optimizer = torch.optim.AdamW(self.weights(), lr=lr)
        self.schedule = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, 0.0, num_steps)

    @abstractmethod
    def weights(self) -> list[nn.Parameter]:
        """What is trained."""

    @abstractmethod
    def losses(self, inputs: Inputs) -> list[Tensor]:
        """The relative errors of one batch."""

    def step(self, inputs: Inputs) -> list[float]:
        """Learns from a batch; returns its errors before the step."""
        self.optimizer.zero_grad()
        found = self.losses(inputs)
        backward: Callable[[], None] = torch.stack(found).sum().backward
        backward()
        self.optimizer.step()
        self.schedule.step()
        return [float(loss.detach()) for loss in found]

    def state(self) -> dict[str, Any]:
        """All that a later process needs to go on."""
        return {name: getattr(self, name).state_dict() for name in ("student", "optimizer", "schedule")}

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `state` returned."""
        for name, value in state.items():
            getattr(self, name).load_state_dict(value)


class LayerHealing(Healing):
    """Trains each block in `layers` alone, to give the output of the teacher's block for its input.

    One pass over the batches serves all layers, since none reads another.
    """

    def __init__(self, student: Any, teacher: Any, layers: Sequence[int], *, lr: float, num_steps: int) -> None:
        blocks, originals = find_blocks(student), find_blocks(teacher)
        self.blocks, self.originals = [blocks[i] for i in layers], [originals[i] for i in layers]
        super().__init__(student, teacher, lr=lr, num_steps=num_steps)

    def weights(self) -> list[nn.Parameter]:
        return [weight for block in self.blocks for weight in block.parameters()]

    def losses(self, inputs: Inputs) -> list[Tensor]:
        calls = _record_calls(self.teacher, self.originals, inputs)
        return [
            relative_error(_hidden_states(block(*args, **options)), target, inputs)
            for block, (args, options, target) in zip(self.blocks, calls, strict=True)
        ]


class FinalHealing(Healing):
    """Trains all weights to give the teacher's last hidden states."""

    def weights(self) -> list[nn.Parameter]:
        return list(self.student.parameters())

    def losses(self, inputs: Inputs) -> list[Tensor]:
        with torch.no_grad():
            target = last_states(self.teacher, inputs)
        return [relative_error(last_states(self.student, inputs), target, inputs)]


def find_blocks(model: nn.Module) -> nn.ModuleList | nn.Sequential:
    """The blocks in the order of the layers: the longest list of modules of one class; Sequential in timm.

    Raises ValueError for a model without a list of blocks.
    """
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList | nn.Sequential)]
    lists = [blocks for blocks in lists if len({type(block) for block in blocks}) == 1]
    if not lists:
        raise ValueError(f"{type(model).__name__} has no list of blocks, one for each layer, to heal")
    return max(lists, key=len)


@contextmanager
def with_original_blocks(student: nn.Module, teacher: nn.Module, layers: Collection[int]) -> Iterator[None]:
    """Puts the teacher's blocks of these layers into the student for a while."""
    blocks, originals = find_blocks(student), find_blocks(teacher)
    own = list(blocks)
    for index in layers:
        blocks[index] = originals[index]
    try:
        yield
    finally:
        for index in layers:
            blocks[index] = own[index]


def last_states(model: Any, inputs: Inputs) -> Tensor:
    """The last hidden states (B, N, C) of a model of Transformers, or of timm for images (B, 3, H, W)."""
    states: Tensor = model.forward_features(inputs) if isinstance(inputs, Tensor) else model(**inputs).last_hidden_state
    return states


def relative_error(output: Tensor, target: Tensor, inputs: Inputs) -> Tensor:
    """Mean squared error (B, N, C) over the variance of the target, both of real tokens."""
    mask = None if isinstance(inputs, Tensor) else inputs.get("attention_mask")
    if mask is not None:
        output, target = output[mask.bool()], target[mask.bool()]
    return F.mse_loss(output, target) / target.var()


def _record_calls(teacher: nn.Module, blocks: Sequence[nn.Module], inputs: Inputs) -> list[tuple[Any, Any, Tensor]]:
    """Arguments, options and output of each block in one forward pass."""
    calls: dict[nn.Module, tuple[Any, Any, Tensor]] = {}

    def note(block: nn.Module, args: Any, options: Any, output: Any) -> None:
        calls[block] = (args, options, _hidden_states(output))

    handles = [block.register_forward_hook(note, with_kwargs=True) for block in blocks]
    try:
        with torch.no_grad():
            last_states(teacher, inputs)
    finally:
        for handle in handles:
            handle.remove()
    return [calls[block] for block in blocks]


def _hidden_states(output: Any) -> Tensor:
    """The hidden states among what a block returns."""
    states: Tensor = output[0] if isinstance(output, tuple) else output
    return states
