"""Control: one random permutation per channel, which does not depend on the data."""

from __future__ import annotations

import torch
from torch import Tensor

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs, LayerSpec
from sliceformer_lab.batch import Padding


class RandomPermutation(Attention):
    """Each channel's tokens in a fixed random order, drawn at construction and saved in checkpoints.

    Every token position has a random key. n real tokens are ordered by the first n keys, whatever the padding. In a
    causal layer, each position reads from a fixed random one of all `max_len`, and has zero if that is a later one: no
    permutation but the identity has only earlier sources.
    Raises ValueError without spec.max_len.
    """

    maps_channels = True
    accepts_causal = True
    complexity = "N log N C"
    source = "control"
    keys: Tensor  # (C, max_len) int32, each row a permutation

    def __init__(self, spec: LayerSpec) -> None:
        super().__init__(spec)
        keys = torch.rand(self.width, self.max_len).argsort(dim=1)
        self.register_buffer("keys", keys.int())

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, C) -> (B, N, C), each channel permuted within the real tokens. Raises ValueError for N > max_len."""
        source = self._draw_sources(v.shape[1], given.padding).transpose(1, 2)
        if not self.spec.causal:
            return v.gather(1, source.expand_as(v))
        later = source > torch.arange(v.shape[1], device=v.device)[:, None]
        return v.gather(1, source.masked_fill(later, 0).expand_as(v)).masked_fill(later, 0)

    def _draw_sources(self, num_tokens: int, padding: Padding | None) -> Tensor:
        """The token that each position reads from, (B or 1, C, N)."""
        self.refuse_longer(num_tokens)
        keys = self.keys[None, :, :num_tokens]
        if self.spec.causal:
            return keys.long()  # themselves a permutation, and the same for every length
        if padding is not None:
            keys = keys.where(padding.mask[:, None], self.max_len)  # behind every real token
        return keys.argsort(dim=2)
