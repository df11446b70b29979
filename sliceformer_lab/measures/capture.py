"""What the blocks of an encoder show of a forward pass, seen by hooks that change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from pytorch_lightning.utilities.seed import isolate_rng
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from sliceformer_lab.batch import Padding


def blocks_of(model: nn.Module) -> list[Any]:
    """The encoder's blocks. Raises ValueError if the model has none."""
    blocks = getattr(getattr(model, "encoder", None), "blocks", None)
    if not blocks:
        raise ValueError(f"{type(model).__name__} has no encoder.blocks")
    return list(blocks)


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Evaluation without gradients; random generators and every module's mode are afterwards what they were."""
    training = [module for module in model.modules() if module.training]
    with isolate_rng(), torch.no_grad():
        model.eval()
        try:
            yield
        finally:
            for module in training:
                module.training = True


@contextmanager
def captured(blocks: list[Any]) -> Iterator[list[dict[str, Tensor]]]:
    """What the next forward pass shows of every block: token matrices (B, N, C) by place, and the `lengths` (B,).

    Places are `before`, what the block is given; `input`, what `attention.value` returns; `output`, what
    `attention.out` receives; and `stream`, what the block returns.
    """
    taken: list[dict[str, Tensor]] = [{} for _ in blocks]
    handles = [handle for block, seen in zip(blocks, taken, strict=True) for handle in _watch(block, seen)]
    try:
        yield taken
    finally:
        for handle in handles:
            handle.remove()


def _watch(block: Any, seen: dict[str, Tensor]) -> list[RemovableHandle]:
    def keep_value(_: nn.Module, _args: Any, output: Tensor) -> None:
        seen["input"] = output.detach().cpu()

    def keep_mixed(_: nn.Module, args: Any) -> None:
        seen["output"] = args[0].detach().cpu()

    def keep_stream(_: nn.Module, args: Any, output: Tensor) -> None:
        padding: Padding | None = args[1] if len(args) > 1 else None
        rows, num_tokens = output.shape[:2]
        seen["lengths"] = torch.full((rows,), num_tokens) if padding is None else padding.lengths.cpu()
        seen["before"] = args[0].detach().cpu()
        seen["stream"] = output.detach().cpu()

    return [
        block.attention.value.register_forward_hook(keep_value),
        block.attention.out.register_forward_pre_hook(keep_mixed),
        block.register_forward_hook(keep_stream),
    ]
