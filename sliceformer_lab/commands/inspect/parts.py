"""Switches parts of blocks off for a while, as Dong et al. (2021) do, on trained models."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from sliceformer_lab.encoder.block import Block

# Parameters that only add to tokens; gMLP's spatial.bias and Hydra's step_bias, for example, are the operator itself.
OFFSET = re.compile(r"((norm1|norm2|mlp)\..*|attention\.(value|query|key|out)\.)bias")


@dataclass(frozen=True)
class Parts:
    """The parts of a block other than its attention."""

    skip: bool
    mlp: bool
    norm: bool

    @property
    def is_whole(self) -> bool:
        """Whether all parts are on."""
        return self.skip and self.mlp and self.norm

    def __str__(self) -> str:
        parts = {"skip": self.skip, "MLP": self.mlp, "norm": self.norm}
        return " + ".join(["attention", *(name for name, is_on in parts.items() if is_on)])


WHOLE = Parts(skip=True, mlp=True, norm=True)
ALL_PARTS = [Parts(skip=s, mlp=m, norm=n) for s, m, n in product((False, True), repeat=3)]


def can_be_taken_apart(blocks: Sequence[nn.Module]) -> bool:
    """Whether these are transformer blocks; others (MEGA, Set Transformer, GPS) have no such parts."""
    return all(type(block) is Block for block in blocks)


@contextmanager
def only_parts(blocks: Sequence[Any], parts: Parts) -> Iterator[None]:
    """Switches all other parts of the blocks off, and restores them at the end.

    If any part is off, the biases of norms, MLPs and projections are 0 too: without skip connections they would
    dominate the tokens, and any operator would seem to collapse them. The norm of an MLP is off with it. Without skip
    connections, an MLP that is off is the identity.
    """
    if parts.is_whole:
        yield
        return
    modules = [(block.norm1, block.norm2, block.mlp) for block in blocks]
    biases = [p for block in blocks for name, p in block.named_parameters() if OFFSET.fullmatch(name)]
    values = [bias.detach().clone() for bias in biases]
    try:
        with torch.no_grad():
            for bias in biases:
                bias.zero_()
        for block in blocks:
            if not parts.skip:
                vars(block)["add_residual"] = _branch_alone
            if not parts.norm:
                block.norm1 = nn.Identity()
            if not (parts.norm and parts.mlp):
                block.norm2 = nn.Identity()
            if not parts.mlp:
                block.mlp = _Zero() if parts.skip else nn.Identity()
        yield
    finally:
        with torch.no_grad():
            for bias, value in zip(biases, values, strict=True):
                bias.copy_(value)
        for block, (norm1, norm2, mlp) in zip(blocks, modules, strict=True):
            vars(block).pop("add_residual", None)
            block.norm1, block.norm2, block.mlp = norm1, norm2, mlp


def _branch_alone(_: Tensor, branch: Tensor) -> Tensor:
    """A branch without the skip connection, the gain and drop path. (B, N, C), (B, N, C) -> (B, N, C)."""
    return branch


class _Zero(nn.Module):
    """Nothing to add. (B, N, C) -> (B, N, C)."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)
