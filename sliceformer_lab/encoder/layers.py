"""Patch embedding, MLP, stochastic depth, and the mark on parameters that do not decay.

timm has the same layers, but importing one of them imports its whole model zoo: 0.7 s of every start.
"""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from sliceformer_lab.attention.dropout import Dropout


class PatchEmbed(nn.Module):
    """One token per patch, row by row. (B, c, H, W) -> (B, patches, dim)."""

    def __init__(self, patch_size: int, channels: int, dim: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, dim, kernel_size=patch_size, stride=patch_size)

    def forward(self, images: Tensor) -> Tensor:
        patches: Tensor = self.proj(images)  # (B, dim, rows, columns)
        return patches.flatten(2).mT


class ConvPatchEmbed(nn.Module):
    """One token per patch, row by row, which also sees the pixels around it. (B, c, H, W) -> (B, patches, dim).

    One convolution for each prime factor of the patch size, with that stride, batch norm and GELU, then a linear map.
    The number of channels doubles from one to the next and ends at `dim`. From few images this learns faster than one
    large patch. Source: Xiao et al. 2021, Early convolutions help transformers see better.
    """

    def __init__(self, patch_size: int, channels: int, dim: int) -> None:
        super().__init__()
        strides = prime_factors(patch_size) or [1]
        widths = [channels, *(max(1, dim >> later) for later in reversed(range(len(strides))))]
        layers: list[nn.Module] = []
        for stride, (before, after) in zip(strides, pairwise(widths), strict=True):
            kernel = stride + 2 if stride % 2 else stride + 1  # odd, and larger than the stride: patches overlap
            convolution = nn.Conv2d(before, after, kernel, stride, padding=kernel // 2, bias=False)
            layers += [convolution, nn.BatchNorm2d(after), nn.GELU()]
        self.proj = nn.Sequential(*layers, nn.Conv2d(dim, dim, kernel_size=1))

    def forward(self, images: Tensor) -> Tensor:
        patches: Tensor = self.proj(images)  # (B, dim, rows, columns)
        return patches.flatten(2).mT


def prime_factors(number: int) -> list[int]:
    """The prime factors of a number, smallest first; none for 1."""
    factor = next((n for n in range(2, number + 1) if number % n == 0), None)
    return [] if factor is None else [factor, *prime_factors(number // factor)]


class Mlp(nn.Module):
    """Two linear layers with an activation between them. (..., dim) -> (..., dim).

    `drop` is the dropout rate after each layer, or a rate for each of the two.
    """

    def __init__(
        self, dim: int, hidden_dim: int, *, act_layer: type[nn.Module], drop: float | tuple[float, float] = 0.0
    ) -> None:
        super().__init__()
        first, second = drop if isinstance(drop, tuple) else (drop, drop)
        self.fc1, self.act, self.drop1 = nn.Linear(dim, hidden_dim), act_layer(), Dropout(first)
        self.fc2, self.drop2 = nn.Linear(hidden_dim, dim), Dropout(second)

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


def without_decay(parameter: nn.Parameter) -> nn.Parameter:
    """The same parameter, marked as excluded from weight decay. A deep copy loses the mark."""
    parameter.no_decay = True  # type: ignore[attr-defined]
    return parameter
