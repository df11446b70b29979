"""CSP on rows and columns, for a batch in which no sample has a patch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sliceformer_lab.attention import BlockInputs, build_attention
from sliceformer_lab.batch import Padding


@pytest.mark.parametrize("options", [{}, {"order": "random"}, {"reference": "channel0"}, {"group_size": None}])
@pytest.mark.parametrize("padded", [False, True])
def test_prefix_tokens_without_patches_stay(options: dict[str, Any], padded: bool) -> None:
    layer: Any = build_attention(
        "csp", dim=8, num_heads=2, max_len=17, grid=(4, 4), overrides={"grid": True, **options}
    )
    v = torch.randn(2, 1, 8)
    padding = Padding.from_lengths(torch.tensor([1, 1]), 1) if padded else None
    assert layer.mix(v, given=BlockInputs(padding)).equal(v)
    assert layer.source_index(v, padding).equal(torch.zeros(2, 1, 8, dtype=torch.int64))
