"""The batches that a collate function passes to a model: padded inputs, targets and structure."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Self

import torch
from torch import Tensor

NO_CLASS = -100  # the target of a token, pixel or unit without a class: what torch's cross-entropy ignores


@dataclass(frozen=True)
class Movable:
    """A record of tensors that is moved to a device as a whole."""

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        """A copy on `device`."""
        return self._apply_to_each("to", device, non_blocking=non_blocking)

    def pin_memory(self) -> Self:
        """A copy in page-locked memory."""
        return self._apply_to_each("pin_memory")

    def _apply_to_each(self, method: str, *values: object, **options: object) -> Self:
        present = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}
        return replace(self, **{name: getattr(part, method)(*values, **options) for name, part in present.items()})


@dataclass(frozen=True)
class Padding(Movable):
    """The number of real tokens of each padded sample; padding is a suffix.

    The collate function makes it once for all layers. A batch without padding has None in its place and needs no mask.
    """

    lengths: Tensor  # (B,) int64, each at least 1
    mask: Tensor  # (B, N) bool, True on real tokens

    @classmethod
    def from_lengths(cls, lengths: Tensor, num_tokens: int) -> Padding | None:
        """The padding of samples with `lengths` (B,) real tokens in rows of `num_tokens`; None if all rows are full.

        Reads the lengths, so call it on the CPU (in a collate function). Raises ValueError for lengths outside
        1..num_tokens.
        """
        shortest, longest = int(lengths.min()), int(lengths.max())
        if shortest < 1 or longest > num_tokens:
            raise ValueError(f"lengths must be within 1..{num_tokens}, got {shortest}..{longest}")
        if shortest == num_tokens:
            return None
        return cls(lengths, torch.arange(num_tokens, device=lengths.device) < lengths[:, None])

    def after_prefix(self, count: int) -> Padding:
        """The padding of the same samples with `count` more real tokens (CLS, graph token) in front."""
        front = self.mask.new_ones(self.mask.shape[0], count)
        return Padding(self.lengths + count, torch.cat([front, self.mask], dim=1))

    def repeated(self, times: int) -> Padding:
        """The padding of a batch in which every sample is repeated `times` times in a row."""
        return Padding(self.lengths.repeat_interleave(times), self.mask.repeat_interleave(times, dim=0))


def fill_padding(x: Tensor, padding: Padding | None, value: float = 0) -> Tensor:
    """x (B, N, C) with `value` at padded tokens."""
    return x if padding is None else x.masked_fill(~padding.mask[..., None], value)


@dataclass(frozen=True)
class Edges(Movable):
    """The edges between nodes among the tokens (B, N) of a padded batch, for layers that convolve along them."""

    nodes: Tensor  # (V,) int64, place of each real node among the B * N tokens, row after row
    index: Tensor  # (2, E) int64, source and target among the V nodes
    features: Tensor | None = None  # (E, C) embedded


@dataclass(frozen=True)
class Graphs(Movable):
    """The structure of a padded batch of graphs with nodes (B, N)."""

    edge_index: Tensor  # (2, E) int64, source and target among the B * N nodes, row after row
    edge_features: Tensor  # (E, F) int64
    distances: Tensor | None = None  # (B, N, N) int64, edges on a shortest path, -1 if there is none
    path_edges: Tensor | None = None  # (B, N, N, K) int64, which of the E edges are the first K of that path, -1 beyond
    positions: Tensor | None = None  # (B, N, P) float, encodings of each node's place in its graph
    hidden_edges: Tensor | None = None  # (E,) bool, edges whose features no model may read; None: none

    def visible(self, embedded: Tensor, rows: Tensor | slice = slice(None)) -> Tensor:
        """Embedded features (E', C) of the edges at `rows`, by default all; zero for hidden edges."""
        return embedded if self.hidden_edges is None else embedded.masked_fill(self.hidden_edges[rows, None], 0)


@dataclass(frozen=True)
class Batch(Movable):
    """One batch of samples of any modality."""

    inputs: Tensor  # (B, ...) images (B, c, H, W), token ids (B, N), points (B, N, 3 or 6), node features (B, N, F)
    target: Tensor  # (B,) classes, (B, T) numbers or labels, (B, N) per token, (B, H, W) per pixel
    ids: Tensor  # (B,) int64, index of each sample in its split, the key in predictions.npz
    padding: Padding | None = None
    structure: Graphs | None = None
    context: Tensor | None = None  # (B, F) features of the whole sample: a shape's category, a molecule's descriptors

    @classmethod
    def unlabelled(cls, inputs: Tensor, padding: Padding | None = None, structure: Graphs | None = None) -> Batch:
        """A batch of new samples; targets are zeros, ids count from zero."""
        ids = torch.arange(len(inputs))
        return cls(inputs, torch.zeros_like(ids), ids, padding, structure)

    @property
    def known(self) -> Tensor:
        """Which parts of the target are known, neither NaN nor NO_CLASS: bool of its shape."""
        return ~self.target.isnan() if self.target.is_floating_point() else self.target != NO_CLASS

    def __len__(self) -> int:
        return int(self.target.shape[0])
