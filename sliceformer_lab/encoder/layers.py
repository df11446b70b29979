"""Patch embedding, MLP and stochastic depth.

timm has the same layers, but importing one of them imports its whole model zoo: 0.7 s of every start.
"""

from __future__ import annotations

from torch import Tensor, nn


class PatchEmbed(nn.Module):
    """One token per patch, row by row. (B, c, H, W) -> (B, patches, dim)."""

    def __init__(self, patch_size: int, channels: int, dim: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, dim, kernel_size=patch_size, stride=patch_size)

    def forward(self, images: Tensor) -> Tensor:
        patches: Tensor = self.proj(images)  # (B, dim, rows, columns)
        return patches.flatten(2).mT


class Mlp(nn.Module):
    """Two linear layers with an activation between them. (..., dim) -> (..., dim).

    `drop` is the dropout rate after each layer, or a rate for each of the two.
    """

    def __init__(
        self, dim: int, hidden_dim: int, *, act_layer: type[nn.Module], drop: float | tuple[float, float] = 0.0
    ) -> None:
        super().__init__()
        first, second = drop if isinstance(drop, tuple) else (drop, drop)
        self.fc1, self.act, self.drop1 = nn.Linear(dim, hidden_dim), act_layer(), nn.Dropout(first)
        self.fc2, self.drop2 = nn.Linear(hidden_dim, dim), nn.Dropout(second)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.drop1(self.act(self.fc1(x)))
        output: Tensor = self.drop2(self.fc2(hidden))
        return output


class GELUTanh(nn.GELU):
    """GELU in its tanh approximation."""

    def __init__(self) -> None:
        super().__init__(approximate="tanh")


class DropPath(nn.Module):
    """Stochastic depth (Huang et al. 2016): zeroes whole samples in training and scales the others up.

    Sits on a residual branch. (B, ...) -> (B, ...).
    """

    def __init__(self, drop_prob: float) -> None:
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.drop_prob == 0:
            return x
        keep = 1 - self.drop_prob
        scale = x.new_empty([len(x)] + [1] * (x.ndim - 1)).bernoulli_(keep) / keep  # 0 or 1/keep for each sample
        return x * scale
