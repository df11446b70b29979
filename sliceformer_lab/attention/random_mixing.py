"""Control: every token receives a fixed random average of all tokens, the mixer of RandFormer."""

from __future__ import annotations

import torch
from torch import Tensor

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs, LayerSpec
from sliceformer_lab.config.option_types import NonNegative


class RandomMixing(Attention):
    """softmax(scale * U) V with U uniform in [0, 1), drawn at construction, never trained, saved in checkpoints.

    With scale 1 the weights are nearly equal, so this is the mean plus a few percent of noise; 8 to 32 mix at random.
    n real tokens use the first n rows and columns. Raises ValueError without spec.max_len.
    """

    maps_channels = True
    complexity = "N^2 C"
    source = "control; MetaFormer baselines, arXiv 2210.13452"
    logits: Tensor  # (max_len, max_len), scale * U

    def __init__(self, spec: LayerSpec, *, scale: NonNegative = 1.0) -> None:
        super().__init__(spec)
        self.register_buffer("logits", scale * torch.rand(self.max_len, self.max_len))

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """(B, N, C) -> (B, N, C), averages of the real tokens. Raises ValueError for N > max_len."""
        num_tokens = v.shape[1]
        self.refuse_longer(num_tokens)
        logits = self.logits[:num_tokens, :num_tokens]
        if given.padding is not None:
            logits = logits.masked_fill(~given.padding.mask[:, None], -torch.inf)
        return logits.softmax(dim=-1).to(v.dtype) @ v
