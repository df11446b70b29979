"""The base class of linear attentions with a convolution of the values and a gate: RALA and PolaFormer."""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs, LayerSpec
from sliceformer_lab.attention.patch_grid import PatchGrid
from sliceformer_lab.batch import Padding, fill_padding


class GatedKernel(Attention):
    """(attend(v) + convolution(v)) times a gate, a linear map of the input. (B, N, dim) -> (B, N, dim).

    The convolution is depthwise, over tokens or over the rows and columns of patches; prefix tokens (CLS) get its bias
    only. `mix` and the implied map are what is linear in the values: without the convolution's bias and the gate.
    """

    query: nn.Module
    key: nn.Module

    maps_channels = True
    needs_qk = True
    mixable = False  # the gate is computed from the layer's input

    def __init__(self, spec: LayerSpec, kernel_size: int, *, num_maps: int, copies: int = 1) -> None:
        """`num_maps` groups of channels have weights of their own; `copies` groups share a filter."""
        super().__init__(spec)
        self.num_maps, self.copies = num_maps, copies
        self.gate = self._projection(spec.dim, self.width, spec.value_bias)
        self.conv = _ValueConv(spec, self.width, kernel_size, copies)

    @abstractmethod
    def attend(self, v: Tensor, q: Tensor, k: Tensor, padding: Padding | None) -> Tensor:
        """Values (B, M, N, E) for `num_maps` groups M, queries and keys (B, N, H*D) -> (B, M, N, E)."""

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, H*D) values, queries and keys -> (B, N, H*D). Raises ValueError without q or k."""
        q, k = self.queries_and_keys(q, k)
        groups = torch.unflatten(v, -1, (self.num_maps, -1)).transpose(1, 2)
        return self.merge_heads(self.attend(groups, q, k, given.padding)) + self.conv(v, given.padding)

    def forward(self, x: Tensor, padding: Padding | None = None, bias: Tensor | None = None) -> Tensor:
        """(B, N, dim) -> (B, N, dim)."""
        v, q, k = self.project(x)
        mixed = self.mix(v, q, k, self.check_inputs(x, padding, bias)) + torch.cat([self.conv.bias] * self.copies)
        return self.project_out(v, mixed * self.gate(x))

    def maps(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """The matrices (B, C, N, N) of `mix` for queries and keys (B, N, H*D). Raises ValueError without them."""
        q, k = self.queries_and_keys(q, k)
        padding = given.padding
        unit = torch.eye(q.shape[1], dtype=q.dtype, device=q.device)
        maps = self.attend(unit.expand(len(q), self.num_maps, -1, -1), q, k, padding)
        near = self.conv(unit[:, :, None].expand(-1, -1, self.width), None).permute(2, 1, 0)  # (C, N, N)
        if padding is not None:
            near = near * padding.mask[:, None, None, :]
        return maps.repeat_interleave(self.width // self.num_maps, dim=1) + near


class _ValueConv(nn.Module):
    """A depthwise convolution of the values (B, N, C) -> (B, N, C), without its bias; prefix tokens receive zero."""

    def __init__(self, spec: LayerSpec, width: int, kernel_size: int, copies: int) -> None:
        super().__init__()
        self.copies = copies
        self.patches = PatchGrid(spec)
        channels = width // copies
        window = (kernel_size,) if spec.grid is None else (kernel_size, kernel_size)
        limit = math.prod(window) ** -0.5  # that of torch's convolutions
        self.weight = nn.Parameter(torch.empty(channels, 1, *window).uniform_(-limit, limit))
        self.bias = nn.Parameter(torch.empty(channels).uniform_(-limit, limit))

    def forward(self, v: Tensor, padding: Padding | None) -> Tensor:
        v = fill_padding(v, padding)
        cells = self.patches.to_grid(v[:, self.patches.num_prefix :]).permute(0, 3, 1, 2)
        weight = torch.cat([self.weight] * self.copies)
        if self.patches.size is None:
            cells = F.conv1d(cells[:, :, 0], weight, padding="same", groups=len(weight))[:, :, None]
        else:
            cells = F.conv2d(cells, weight, padding="same", groups=len(weight))
        return F.pad(self.patches.to_tokens(cells.permute(0, 2, 3, 1)), (0, 0, self.patches.num_prefix, 0))
