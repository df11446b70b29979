"""Records the tokens that the blocks of an encoder see in a forward pass, without changing it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from pytorch_lightning.utilities.seed import isolate_rng
from torch import Tensor, nn


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; random generators and the modules' modes are restored at the end."""
    training = [module for module in model.modules() if module.training]
    with isolate_rng(), torch.no_grad():
        model.eval()
        try:
            yield
        finally:
            for module in training:
                module.training = True


@contextmanager
def record_blocks(blocks: Sequence[Any]) -> Iterator[list[dict[str, Tensor]]]:
    """Records the next forward pass of every block: token matrices (B, N, C) by place, and the `lengths` (B,).

    Places are `before`, the block's input; `input`, the values of the attention; `output`, the mixed values; and
    `stream`, the block's output.
    """
    taken: list[dict[str, Tensor]] = [{} for _ in blocks]
    with ExitStack() as watching:
        for block, seen in zip(blocks, taken, strict=True):
            watching.enter_context(block.attention.observed(_keep_mixing(seen)))
            handle = block.register_forward_hook(_keep_stream(seen))
            watching.callback(handle.remove)
        yield taken


def _keep_mixing(seen: dict[str, Tensor]) -> Callable[[Tensor, Tensor], None]:
    def keep(v: Tensor, mixed: Tensor) -> None:
        seen["input"], seen["output"] = v.detach().cpu(), mixed.detach().cpu()

    return keep


def _keep_stream(seen: dict[str, Tensor]) -> Callable[[nn.Module, Any, Tensor], None]:
    def keep(_: nn.Module, args: Any, output: Tensor) -> None:
        padding = args[1].padding if len(args) > 1 else None  # a library's block has the tokens alone
        rows, num_tokens = output.shape[:2]
        seen["lengths"] = torch.full((rows,), num_tokens) if padding is None else padding.lengths.cpu()
        seen["before"] = args[0].detach().cpu()
        seen["stream"] = output.detach().cpu()

    return keep
