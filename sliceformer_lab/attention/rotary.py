"""Rotary positions: queries and keys are rotated by an angle proportional to the token's position."""

from __future__ import annotations

import torch
from torch import Tensor

from sliceformer_lab.attention.precision import widen


def rotate(
    x: Tensor,
    num_heads: int,
    *,
    grid: tuple[int, int] | None = None,
    num_prefix: int = 0,
    order: tuple[int, ...] | None = None,
) -> Tensor:
    """Queries or keys (B, N, H*D), each pair of channels of a head rotated by position. -> (B, N, H*D).

    Without a grid, the position is the token's index. With a grid, half of a head's channel pairs rotate with the row
    and half with the column (axial), and the `num_prefix` tokens in front of the patches do not rotate. `order` is the
    patch, counted row by row, of each token; None means row by row.
    Frequencies 10000^(-2i/D) (Su et al. 2021, RoFormer, section 3.2.2).
    Raises ValueError if the head width is not a multiple of 2 (with a grid, of 4).
    """
    head_dim = x.shape[-1] // num_heads
    axes = 1 if grid is None else 2
    if head_dim % (2 * axes):
        raise ValueError(f"rope needs a head width that is a multiple of {2 * axes}, got {head_dim}")
    pairs = widen(torch.unflatten(x, -1, (num_heads, -1, 2)))  # (B, N, H, D/2, 2)
    angles = _compute_angles(pairs, grid, num_prefix, order)  # (N, D/2)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    even, odd = pairs.unbind(-1)
    rotated = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1)
    return rotated.flatten(2).to(x.dtype)


def _compute_angles(
    pairs: Tensor, grid: tuple[int, int] | None, num_prefix: int, order: tuple[int, ...] | None
) -> Tensor:
    num_tokens, device = pairs.shape[1], pairs.device
    token = torch.arange(num_tokens, device=device)
    if grid is None:
        coordinates = token[None]  # (1, N)
    else:
        patch = (token - num_prefix).clamp(min=0)  # the prefix is at the origin, where nothing rotates
        if order is not None:
            of_patches = order[: max(0, num_tokens - num_prefix)]  # longformer rotates its global tokens alone
            patch[num_prefix:] = torch.tensor(of_patches, device=device, dtype=patch.dtype)
        coordinates = torch.stack([patch // grid[1], patch % grid[1]])  # (2, N)
    number = pairs.shape[3] // len(coordinates)
    frequency = 10000.0 ** (-torch.arange(number, device=device, dtype=pairs.dtype) / number)
    return torch.cat([c[:, None] * frequency for c in coordinates], dim=1)
