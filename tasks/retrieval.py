"""Classification of pairs of sequences: one encoder for both, one head for the two concatenated vectors."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sliceformer_lab.batch import Batch, Padding
from sliceformer_lab.tasks.sequence import Head, SequenceClassification


class Retrieval(SequenceClassification):
    """A sequence encoder of any attention, shared by both sequences of a pair. Ids (2B, N) -> logits (B, classes).

    Rows 0..B-1 are the first sequences of the pairs, the other rows the second ones; one forward pass encodes all. The
    options are those of `SequenceClassification`; head `mlp` has a second hidden layer of half the width (Long-Range
    Arena).
    """

    maskable = False  # two rows of a batch share an id, and masks follow from ids

    def build_head(self, head: Head, dim: int, hidden: int) -> nn.Module:
        """The head, from two concatenated vectors (B, 2 dim) to logits (B, classes)."""
        if head != "mlp":
            return super().build_head(head, 2 * dim, hidden)
        first, second = nn.Linear(2 * dim, hidden), nn.Linear(hidden, hidden // 2)
        return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Linear(hidden // 2, self.num_outputs))

    def encoded(self, inputs: Tensor, padding: Padding | None) -> Tensor:
        """The two concatenated vectors of each pair: (2B, N) -> (B, 2 dim)."""
        first, second = super().encoded(inputs, padding).chunk(2)
        return torch.cat([first, second], dim=1)

    def example(self) -> Batch:
        """One pair of the largest length, to count costs with."""
        one = super().example()
        return Batch(torch.cat([one.inputs, one.inputs]), one.target, one.ids)
