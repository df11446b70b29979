from __future__ import annotations

import re

import pytest
import torch
from compare_kernels import PARTS, compare
from torch import Tensor

from sliceformer_lab.permute.backend import Case
from sliceformer_lab.permute.cpu import _LIBRARY, CpuBackend, open_library

SHAPE = (2, 40, 24)


@pytest.fixture
def kernel() -> CpuBackend:
    if not _LIBRARY.exists():
        pytest.skip("the CPU kernel is not built")
    return CpuBackend(open_library(_LIBRARY))


class WrongOrder(CpuBackend):
    """A kernel whose result is right and whose saved order is not."""

    def forward(self, v: Tensor, case: Case, save: bool) -> tuple[Tensor, Tensor]:
        y, saved = super().forward(v, case, save)
        return y, saved.flip(1)


def test_line_has_the_ratio_of_every_part(kernel: CpuBackend) -> None:
    line = compare(kernel, kernel, SHAPE, torch.bfloat16, rounds=3)
    ratio = r"\d+\.\d\d \(\d+\.\d\d-\d+\.\d\d\)"
    parts = "; ".join(f"{name} {ratio}" for name in PARTS)
    assert re.fullmatch(f"40 tokens, bfloat16: {parts}", line)


def test_kernels_that_differ_are_refused(kernel: CpuBackend) -> None:
    wrong = WrongOrder(open_library(_LIBRARY))
    with pytest.raises(ValueError, match="do not agree on"):
        compare(kernel, wrong, SHAPE, torch.float32, rounds=3)
