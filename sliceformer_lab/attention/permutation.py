"""The base class of attentions that permute: pairwise bias, aligned readout, implied matrices."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

import torch
from torch import Tensor

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs, LayerSpec
from sliceformer_lab.attention.dropout import drop
from sliceformer_lab.batch import Padding

Reference = Literal["none", "channel0"]
BiasFormula = Literal["mix_plus_sort", "sort_of_mix"]


class PermutationAttention(Attention):
    """Moves the values of each channel between tokens; only value and output projections have parameters.

    A graph bias (B, H, N, N) enters as softmax(bias) V per head: `mix_plus_sort` adds it to the permuted V (published
    Graphormer code), `sort_of_mix` permutes it in place of V (Sliceformer, section 4.3).
    A subclass implements its permutation twice: `permute` returns the values, `source_index` the sources.
    """

    accepts_bias = True
    maps_channels = True

    def __init__(
        self,
        spec: LayerSpec,
        *,
        reference: Reference,
        inner_mult: float,
        bias_formula: BiasFormula,
    ) -> None:
        super().__init__(spec, inner_mult=inner_mult)
        self.reference = reference == "channel0"
        self.bias_formula = bias_formula

    @abstractmethod
    def permute(self, v: Tensor, padding: Padding | None) -> Tensor:
        """The permuted values: (B, N, C) -> (B, N, C)."""

    @abstractmethod
    def source_index(self, v: Tensor, padding: Padding | None) -> Tensor:
        """The token each slot of `permute` is read from: (B, N, C) -> (B, N, C) int64, -1 on padding."""

    def mix(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        permuted = self.permute(self.values_to_permute(v, given), given.padding)
        if given.bias is None or self.bias_formula == "sort_of_mix":
            return permuted
        return self._mix_bias(v, given.padding, given.bias) + permuted

    def values_to_permute(self, v: Tensor, given: BlockInputs = ALONE) -> Tensor:
        """What `permute` moves in `mix`: V, or softmax(bias) V under `sort_of_mix`. (B, N, C) -> (B, N, C)."""
        if given.bias is None or self.bias_formula == "mix_plus_sort":
            return v
        return self._mix_bias(v, given.padding, given.bias)

    def _mix_bias(self, v: Tensor, padding: Padding | None, bias: Tensor) -> Tensor:
        """softmax(bias) V per head. (B, N, C) -> (B, N, C)."""
        weights = drop(bias_weights(bias, padding), self.spec.attention_dropout, self.training)
        return self.merge_heads(weights.to(v.dtype) @ self.split_heads(v))

    def reference_channel(self, v: Tensor, given: BlockInputs = ALONE, mixed: Tensor | None = None) -> Tensor:
        """Channel 0 of the values to sort, whose rank order the aligned sort follows: (B, N, C) -> (B, N).

        `mixed` (B, N, C) is what `mix` made of v: it has the pass's own dropout of a bias, and channel 0 in its order.
        Raises ValueError unless reference=channel0.
        """
        if not self.reference:
            raise ValueError("only an aligned sort has a reference channel; set attention.reference=channel0")
        if mixed is not None and given.bias is not None and self.bias_formula == "sort_of_mix":
            return mixed[..., 0]
        return self.values_to_permute(v, given)[..., 0]

    def maps(self, v: Tensor, q: Tensor | None = None, k: Tensor | None = None, given: BlockInputs = ALONE) -> Tensor:
        """One matrix per channel, (B, C, N, N): a permutation, plus or times the weights of a bias."""
        tokens = torch.arange(v.shape[1], device=v.device)
        sources = self.source_index(self.values_to_permute(v, given), given.padding)
        permutations = (sources.transpose(1, 2)[..., None] == tokens).to(v.dtype)
        if given.bias is None:
            return permutations
        weights = bias_weights(given.bias, given.padding).to(v.dtype).repeat_interleave(self.head_dim, dim=1)
        return permutations @ weights if self.bias_formula == "sort_of_mix" else permutations + weights


def bias_weights(bias: Tensor, padding: Padding | None) -> Tensor:
    """softmax(bias) over real keys: (B, H, N, N) -> (B, H, N, N). A row of only -inf weighs all real keys equally."""
    bias = bias.clamp(min=torch.finfo(bias.dtype).min)
    if padding is not None:
        bias = bias.masked_fill(~padding.mask[:, None, None], float("-inf"))
    return bias.softmax(dim=-1)
