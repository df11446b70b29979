"""Agent attention: a few averaged queries gather the values, and the tokens attend to what they gathered."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.patch_grid import PatchGrid
from sliceformer_lab.attention.precision import wide_type
from sliceformer_lab.attention.query_key import QueryKeyAttention
from sliceformer_lab.attention.softmax import attend
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.option_types import Count


class Agent(QueryKeyAttention):
    """softmax(q agents^T) softmax(agents k^T) v, with queries averaged over bins as agents. (B, N, dim) -> the same.

    On an image the bins are cells of the patches, `agents` in all, without prefix tokens (CLS). A sequence is cut into
    `agents` parts of nearly equal length, which overlap where the length is no multiple. A cell of padding alone has no
    agent.
    Raises ValueError for an image with a number of agents that is no square.
    """

    complexity = "N C agents"
    source = "Agent Attention, arXiv 2312.08874, section 3"
    deviation = "Agent Attention: adds position biases and a depthwise convolution of the values; square images only"

    def __init__(self, spec: LayerSpec, *, agents: Count = 49) -> None:
        super().__init__(spec)
        self.agents = agents
        self.patches = PatchGrid(spec)
        if spec.grid is not None and math.isqrt(agents) ** 2 != agents:
            raise ValueError(f"agents={agents} must be a square on an image, such as {max(1, math.isqrt(agents)) ** 2}")

    def attend(self, v: Tensor, q: Tensor, k: Tensor, padding: Padding | None, dropout: float) -> Tensor:
        """(B, H, N, E) values, (B, H, N, D) queries and keys -> (B, H, N, E)."""
        bins = self._weigh_bins(q, padding)
        agents = bins.to(q.dtype)[:, None] @ q  # (B, H, A, D)
        if padding is None:
            return attend(q, agents, attend(agents, k, v, dropout=dropout), dropout=dropout)
        present = bins.any(dim=-1)
        present = present | ~present.any(dim=-1, keepdim=True)  # a query sees an agent, also where CLS is alone
        gathered = attend(agents, k, v, padding.mask[:, None, None], dropout=dropout)
        return attend(q, agents, gathered, present[:, None, None], dropout=dropout)

    def _weigh_bins(self, q: Tensor, padding: Padding | None) -> Tensor:
        """The weight of each token in the mean of each bin (B or 1, A, N), all zero in a bin of padding."""
        num_tokens, device = q.shape[2], q.device
        if self.spec.grid is None:
            lengths = torch.tensor(num_tokens, device=device) if padding is None else padding.lengths[:, None, None]
            bins = _assign_parts(lengths, self.agents, num_tokens, device).expand(1 if padding is None else -1, -1, -1)
        else:
            rows, columns = (_assign_parts(n, math.isqrt(self.agents), n, device) for n in self.spec.grid)
            cells = (rows[:, None, :, None] & columns[None, :, None]).flatten(0, 1)  # (A, rows, columns)
            bins = F.pad(self.patches.to_tokens(cells[..., None])[None, ..., 0], (self.spec.num_prefix, 0))
        if padding is not None:
            bins = bins & padding.mask[:, None]
        return bins / bins.sum(dim=-1, keepdim=True, dtype=wide_type(q)).clamp(min=1)


def _assign_parts(length: int | Tensor, number: int, places: int, device: torch.device) -> Tensor:
    """Which of `places` positions are in which of `number` parts of the first `length`. -> (..., number, places)."""
    part, place = torch.arange(number, device=device)[:, None], torch.arange(places, device=device)
    return (place >= part * length // number) & (place * number < (part + 1) * length)
