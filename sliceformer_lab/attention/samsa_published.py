"""SAMSA as its published code has it, where that differs from the paper."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from sliceformer_lab.attention.base import BlockInputs, LayerSpec
from sliceformer_lab.attention.samsa import SAMSA, Mode, ScoreLinear, proxy_weights
from sliceformer_lab.config.option_types import Count, Positive

MAX_DERIVATIVE = 0.25  # of the relaxation with respect to a score; reached only at temperatures below 1


class SAMSAPublished(SAMSA):
    """SAMSA with the published score, initial weights, cap on gradients, and noise in evaluation, which is random.

    The score reads the tokens before the block's norm. Dropout of attention acts in evaluation too.
    """

    random_evaluation = True
    support_std: ClassVar[float] = 1.0  # supports start as large as tokens
    deviation = ""

    def __init__(
        self,
        spec: LayerSpec,
        *,
        sample_size: Count = 128,
        mode: Mode = "hard",
        tau: Positive | None = None,
        supports: bool = True,
        noise_on_support: bool = True,
    ) -> None:
        super().__init__(
            spec,
            sample_size=sample_size,
            mode=mode,
            tau=tau,
            supports=supports,
            noise_on_support=noise_on_support,
        )
        for layer in (self.value, self.query, self.key):
            if isinstance(layer, nn.Linear):
                nn.init.kaiming_uniform_(layer.weight, nonlinearity="linear")

    def _build_score(self) -> nn.Module:
        return ResidualScore(self.spec.dim, self.spec.num_heads)

    def attend_in_block(self, x: Tensor, given: BlockInputs) -> Tensor:
        """`forward` inside a block, with scores of the tokens before the norm. -> (B, N, dim)."""
        mixed: Tensor = self(x, given.padding, given.bias, given.tokens)
        return mixed

    def _weights(self, z: Tensor) -> tuple[Tensor, Tensor]:
        return proxy_weights(cap_gradient(z, self.tau, MAX_DERIVATIVE), self.proxy, self.tau)


def cap_gradient(z: Tensor, tau: float, limit: float) -> Tensor:
    """The scores z (B, H, 2K) unchanged, with a gradient that is scaled down for each head.

    The factor makes the largest derivative of a pair, `sigmoid((selected - rival) / tau)`, in the whole batch at most
    `limit`.
    """
    selected, rivals = (z.detach() / tau).chunk(2, dim=-1)
    wins = (selected[..., :, None] - rivals[..., None, :]).sigmoid()
    steepest = (wins * (1 - wins) / tau).amax(dim=(0, 2, 3))[:, None]  # (H, 1)
    return z.detach() + limit / steepest.clamp(min=limit) * (z - z.detach())


class ResidualScore(nn.Module):
    """A linear map of the tokens plus a normalised MLP of them. (B, N, dim) -> (B, N, num_heads).

    SAMSA's paper writes an MLP; this is the net of its published code.
    """

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))
        self.norm = _RootNorm(dim)
        self.out = ScoreLinear(dim, num_heads)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.out(x + self.norm(self.mlp(x)))
        return scores


class _RootNorm(nn.Module):
    """x / (rms(x) + 1e-8), times a learned scale per channel. torch's RMSNorm adds its eps to the mean square."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)  # its gradient at 0 is 0, that of a root is infinite
        return self.scale * x / (norm / x.shape[-1] ** 0.5 + 1e-8)
