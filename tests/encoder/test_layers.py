"""Our small layers compute what timm's do, with the same parameters and random numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from timm.layers import activations, drop, mlp, patch_embed
from torch import nn

from sliceformer_lab.encoder.layers import ConvPatchEmbed, DropPath, GELUTanh, Mlp, PatchEmbed


@pytest.mark.parametrize(
    ("own", "peer", "shape"),
    [
        (lambda: PatchEmbed(4, 3, 16), lambda: patch_embed.PatchEmbed((8, 12), 4, 3, 16), (2, 3, 8, 12)),
        (lambda: Mlp(8, 16, act_layer=nn.GELU), lambda: mlp.Mlp(8, 16), (2, 5, 8)),
        (lambda: DropPath(0.3), lambda: drop.DropPath(0.3), (16, 5, 8)),
        (GELUTanh, activations.GELUTanh, (2, 5, 8)),
    ],
)
def test_layer_equals_timm_bit_by_bit(
    own: Callable[[], nn.Module], peer: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    results = []
    for build in (own, peer):
        torch.manual_seed(1)
        layer = build()
        results.append((list(layer.state_dict()), layer(x)))
    assert results[0][0] == results[1][0]
    assert torch.equal(results[0][1], results[1][1])


@pytest.mark.parametrize("patch", [1, 2, 3, 4, 6, 7, 8])
def test_small_convolutions_give_a_token_per_patch_that_sees_its_surroundings(patch: int) -> None:
    embed = ConvPatchEmbed(patch, 3, 16).eval()
    images = torch.randn(2, 3, 5 * patch, 4 * patch, requires_grad=True)
    tokens = embed(images)
    assert tokens.shape == (2, 20, 16)
    tokens[0, 5].sum().backward()  # row 1, column 1
    seen = images.grad[0].abs().sum(0) > 0  # type: ignore[index]
    assert seen[patch : 2 * patch, patch : 2 * patch].any() and seen[patch - 1].any() and not seen[-patch:].any()
