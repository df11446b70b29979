"""The predictions of a model on one split."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from sliceformer_lab.batch import Batch


class Predictions:
    """Outputs of one split, collected batch by batch."""

    def __init__(self) -> None:
        self._parts: list[tuple[Tensor, Tensor, Tensor]] = []

    def add(self, batch: Batch, output: Tensor) -> None:
        """Adds ids, targets and outputs of a batch, on the CPU."""
        self._parts.append((batch.ids.cpu(), batch.target.cpu(), output.detach().cpu()))

    def gathered(self) -> dict[str, Tensor]:
        """ids (n,), targets (n, ...) and logits (n, ...) of the whole split, sorted by id, from all processes."""
        parts = self._parts
        if dist.is_available() and dist.is_initialized():
            everyone: list[list[tuple[Tensor, Tensor, Tensor]]] = [[] for _ in range(dist.get_world_size())]
            dist.all_gather_object(everyone, parts)
            parts = [part for one in everyone for part in one]
        ids, targets, logits = (torch.cat(column) for column in zip(*parts, strict=True))
        order = ids.argsort()
        return {"ids": ids[order], "targets": targets[order], "logits": logits[order]}
