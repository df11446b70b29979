"""Two CPU kernels are compared if they agree, and refused if they do not."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

from sliceformer_lab.permute import backend
from sliceformer_lab.permute.backend import Case

if "cpu" in backend.missing_backends():
    pytest.skip(backend.missing_backends()["cpu"], allow_module_level=True)

from compare_kernels import PARTS, compare

from sliceformer_lab.permute import cpu

SHAPE = (2, 40, 24)


class WrongOrder(cpu.CpuBackend):
    """A kernel whose result is right and whose saved order is not."""

    def forward(self, v: Tensor, case: Case, save: bool) -> tuple[Tensor, Tensor]:
        y, saved = super().forward(v, case, save)
        return y, saved.flip(1)


def test_line_has_the_ratio_of_every_part() -> None:
    line = compare(cpu.BACKEND, cpu.BACKEND, SHAPE, torch.bfloat16, rounds=3)
    ratio = r"\d+\.\d\d \(\d+\.\d\d-\d+\.\d\d\)"
    parts = "; ".join(f"{name} {ratio}" for name in PARTS)
    assert re.fullmatch(f"40 tokens, bfloat16: {parts}", line)


def test_kernels_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match="do not agree on"):
        compare(cpu.BACKEND, WrongOrder(cpu.BACKEND.library), SHAPE, torch.float32, rounds=3)
