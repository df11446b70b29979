"""Token mixing by a block transpose: the heads of H tokens change places with the tokens (RankMixer)."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs, LayerSpec
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.option_types import Count


class TokenReshape(Attention):
    """Head h of the token at place t of a group receives head t of the token at place h: no parameters, no content.

    Groups have H tokens, `stride` apart; `power` takes H^layer, starting again at 1 behind the longest sequence. A
    block whose partner is no real token stays. With `revert`, the output is transposed again. Values
    change their channel, too, so there is no map of tokens.
    Raises ValueError for stride=power without spec.max_len, and for `revert` where values and tokens differ in width.
    """

    complexity = "N C"
    source = "RankMixer, arXiv 2507.15551; TokenMixer-Large, arXiv 2602.06563 (revert)"
    deviation = "RankMixer: one group, of as many tokens as heads; the groups and strides are ours"

    def __init__(self, spec: LayerSpec, *, stride: Literal["power"] | Count = "power", revert: bool = False) -> None:
        super().__init__(spec)
        if revert and self.width != spec.dim:
            raise ValueError(f"revert needs values as wide as the tokens, got {self.width} and {spec.dim}")
        self.revert, self.stride = revert, self._power() if stride == "power" else stride

    def _power(self) -> int:
        spec = self.spec
        if spec.max_len is None:
            raise ValueError("stride=power grows up to the longest sequence; set max_len or a number")
        if spec.num_heads == 1:
            return 1
        levels = max(1, math.ceil(math.log(spec.max_len, spec.num_heads) - 1e-9))
        return int(spec.num_heads ** (spec.index % levels))

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, C) -> (B, N, C), each block of D channels at another place."""
        return self._transpose_blocks(v, given.padding)

    def forward(self, x: Tensor, padding: Padding | None = None, bias: Tensor | None = None) -> Tensor:
        """(B, N, dim) -> (B, N, dim)."""
        out = super().forward(x, padding, bias)
        return self._transpose_blocks(out, padding) if self.revert else out

    def _transpose_blocks(self, v: Tensor, padding: Padding | None) -> Tensor:
        """The block transpose (B, N, C) -> (B, N, C), which is its own inverse."""
        heads, num_tokens = self.spec.num_heads, v.shape[1]
        token = torch.arange(num_tokens, device=v.device)[:, None]
        head = torch.arange(heads, device=v.device)
        place = token // self.stride % heads  # of a token in its group
        partner = token + (head - place) * self.stride  # (N, H)
        exists = partner < (num_tokens if padding is None else padding.lengths[:, None, None])
        source = (partner * heads + place).where(exists, token * heads + head)  # of each block
        blocks = torch.unflatten(v, 2, (heads, -1)).flatten(1, 2)  # (B, N*H, D)
        source = source.expand(len(v), num_tokens, heads).flatten(1)[:, :, None].expand_as(blocks)
        return torch.unflatten(blocks.gather(1, source), 1, (num_tokens, heads)).flatten(2)
