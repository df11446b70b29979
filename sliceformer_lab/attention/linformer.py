"""Linformer: keys and values are projected along the tokens to a few slots."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.query_key import QueryKeyAttention
from sliceformer_lab.attention.softmax import attend
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.option_types import Count


class Linformer(QueryKeyAttention):
    """Softmax attention over `num_slots` learned combinations of the tokens. (B, N, dim) -> (B, N, dim).

    A combination has one weight per position, the same in all heads; a sample of N tokens uses the first N weights.
    Padded keys and values count as zero. Raises ValueError without spec.max_len, and in `mix` for N > max_len.
    """

    complexity = "N C S"
    source = "Wang et al. 2020, equation (7)"
    deviation = "LRA: padding is not masked"

    def __init__(self, spec: LayerSpec, *, num_slots: Count = 16, share_kv: bool = True) -> None:
        super().__init__(spec)
        self.key_slots = nn.Parameter(nn.init.xavier_uniform_(torch.empty(num_slots, self.max_len)))
        self.value_slots = None
        if not share_kv:
            self.value_slots = nn.Parameter(nn.init.xavier_uniform_(torch.empty(num_slots, self.max_len)))

    def attend(self, v: Tensor, q: Tensor, k: Tensor, padding: Padding | None, dropout: float) -> Tensor:
        """(B, H, N, E) values, (B, H, N, D) queries and keys -> (B, H, N, E)."""
        num_tokens = k.shape[2]
        self.refuse_longer(num_tokens)
        if padding is not None:
            k, v = (t.masked_fill(~padding.mask[:, None, :, None], 0) for t in (k, v))
        value_slots = self.key_slots if self.value_slots is None else self.value_slots
        k, v = self.key_slots[:, :num_tokens] @ k, value_slots[:, :num_tokens] @ v  # (B, H, S, D), (B, H, S, E)
        return attend(q, k, v, dropout=dropout)
