"""SAMSA: each head samples a few tokens, and every query attends only to these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sliceformer_lab.attention.base import ALONE, NEVER, Attention, BlockInputs, LayerSpec
from sliceformer_lab.attention.precision import widen
from sliceformer_lab.attention.softmax import attend
from sliceformer_lab.batch import Padding
from sliceformer_lab.config.option_types import Count, Positive

Mode = Literal["hard", "soft"]
Proxy = Literal["pairwise", "softmax"]

_TEMPERATURE: dict[Mode, float] = {"hard": 1.0, "soft": 0.1}


@dataclass(frozen=True)
class TokenSample:
    """The contents of the K slots of each head, best first."""

    keys: Tensor  # (B, H, K, D)
    values: Tensor  # (B, H, K, D)
    index: Tensor  # (B, H, K) int64, the candidate; supports are numbered after the tokens
    scores: Tensor  # (B, H, K), with the noise


class SAMSA(Attention):
    """Softmax attention to K sampled keys and values per head. (B, N, dim) -> (B, N, dim).

    An MLP scores every token for every head; training adds Gumbel noise. The candidates are the tokens and 2K learned
    supports, so K may exceed N. The best K candidates fill the slots and the next K are their rivals. `proxy` mixes
    each slot's candidate with the rivals, and the scores learn through this mixture. `soft` attends to the mixtures.
    `hard` attends to the selected candidates, uses the gradient of the mixtures for the scores (straight-through), and
    in evaluation only gathers. A bias acts on a slot through the column of its token, and not on supports.

    The score reads the input of the layer, as the projections do: the normalised tokens in a pre-norm block.
    Algorithm 1 and the published code (`samsa_published`) read the tokens before the norm.
    `mix` raises ValueError without queries, keys and scores.
    """

    query: nn.Module
    key: nn.Module
    support_std: ClassVar[float] = 0.02  # of the initial supports

    needs_qk = True
    accepts_bias = True
    mixable = False  # scores are computed from the layer's input, not from q, k or v
    order_sensitive = False
    complexity = "N C K + C K^2"
    source = "SAMSA, section 4.2, algorithms 1 and 2, their misprints corrected"
    deviation = (
        "as samsa_published repeats: another score net, which reads the tokens before the norm; noise in evaluation; "
        "other initial weights; a cap on the scores' gradient. Algorithm 2 as printed gives H - 2P in place of H"
    )

    def __init__(
        self,
        spec: LayerSpec,
        *,
        sample_size: Count = 128,
        mode: Mode = "hard",
        proxy: Proxy = "pairwise",
        tau: Positive | None = None,
        supports: bool = True,
        noise_on_support: bool = True,
    ) -> None:
        super().__init__(spec)
        self.sample_size = sample_size
        self.hard = mode == "hard"
        self.proxy: Proxy = proxy
        self.tau = _TEMPERATURE[mode] if tau is None else tau
        self.noise_on_support = noise_on_support
        self.score = self._build_score()
        number = 2 * sample_size
        self.supports = _Supports(spec.num_heads, number, self.head_dim, self.support_std) if supports else None

    def _build_score(self) -> nn.Module:
        """The net that gives every token a score for each head. (B, N, dim) -> (B, N, H)."""
        dim = self.spec.dim
        return nn.Sequential(nn.Linear(dim, dim), nn.GELU(), ScoreLinear(dim, self.spec.num_heads))

    def forward(
        self, x: Tensor, padding: Padding | None = None, bias: Tensor | None = None, scored: Tensor | None = None
    ) -> Tensor:
        """(B, N, dim) -> (B, N, dim); bias (B, H, N, N), -inf allowed. The score reads `scored`; None: x."""
        v, q, k = self.project(x)
        scores = self.score(x if scored is None else scored)
        return self.project_out(v, self.mix(v, q, k, self.check_inputs(x, padding, bias), scores=scores))

    def mix(
        self,
        v: Tensor,
        q: Tensor | None = None,
        k: Tensor | None = None,
        given: BlockInputs = ALONE,
        *,
        scores: Tensor | None = None,
    ) -> Tensor:
        """Values, queries and keys (B, N, H*D) and scores (B, N, H) -> (B, N, H*D)."""
        if q is None or k is None or scores is None:
            raise ValueError("samsa mixes with queries, keys and a score per token and head: mix(v, q, k, scores=s)")
        q, sample = self.split_heads(q), self.sample(k, v, scores, given.padding)
        mixed = attend(
            q,
            sample.keys,
            sample.values,
            self._slot_mask(sample, None if given.bias is None else given.bias.to(q.dtype)),
            dropout=self.spec.attention_dropout if self.training or self.random_evaluation else 0.0,
        )
        return self.merge_heads(mixed)

    def sample(self, k: Tensor, v: Tensor, scores: Tensor, padding: Padding | None = None) -> TokenSample:
        """The slots that every query attends to, from keys and values (B, N, H*D) and scores (B, N, H)."""
        z = widen(scores.transpose(1, 2))
        if padding is not None:
            z = z.masked_fill(~padding.mask[:, None], -torch.inf)
        gathers_only = self.hard and not self.training
        z = self._add_noise(self._with_supports(z), k.shape[1])
        z, index = z.topk(self.sample_size if gathers_only else 2 * self.sample_size)
        slots = self._gather_rows(k, v, index)
        keys, values = (slots if gathers_only else self._relax_slots(slots, z)).chunk(2, dim=-1)
        return TokenSample(keys, values, index[..., : self.sample_size], z[..., : self.sample_size])

    def _with_supports(self, z: Tensor) -> Tensor:
        """Scores of the tokens (B, H, N) -> of all candidates (B, H, N+2K), the supports last.

        Without supports, 2K empty candidates that no query attends to take their place. So there are always 2K finite
        scores, and the top 2K hold no padding.
        """
        if self.supports is None:
            return F.pad(z, (0, 2 * self.sample_size), value=NEVER)
        return torch.cat([z, self.supports.scores.to(z.dtype).expand(len(z), -1, -1)], 2)

    def _gather_rows(self, k: Tensor, v: Tensor, index: Tensor) -> Tensor:
        """Keys and values, concatenated, of the candidates `index` (B, H, S) -> (B, H, S, 2D).

        Reads only the chosen rows; arranging all candidates by head first would cost several copies of k and v.
        """
        batch_size, num_tokens, _ = k.shape
        heads = torch.arange(self.spec.num_heads, device=index.device)[:, None]
        samples = torch.arange(batch_size, device=index.device)[:, None, None]
        places = ((samples * num_tokens + index.clamp(max=num_tokens - 1)) * len(heads) + heads).flatten()
        rows = [x.reshape(-1, self.head_dim).index_select(0, places) for x in (k, v)]
        tokens = torch.cat(rows, dim=-1).view(*index.shape, 2 * self.head_dim)
        if self.supports is None:
            return tokens  # an empty candidate may be any row: it is masked, and as a rival its weight is exactly 0
        number = self.supports.scores.shape[1]
        supports = torch.cat([self.supports.keys, self.supports.values], dim=-1).flatten(0, 1).to(tokens.dtype)
        places = (heads * number + (index - num_tokens).clamp(min=0)).flatten()
        return torch.where((index < num_tokens)[..., None], tokens, supports.index_select(0, places).view_as(tokens))

    def _add_noise(self, z: Tensor, num_tokens: int) -> Tensor:
        if not (self.training or self.random_evaluation):
            return z
        noise = gumbel_noise(z)
        if not self.noise_on_support:
            noise[..., num_tokens:] = 0
        return z + noise

    def _relax_slots(self, chosen: Tensor, z: Tensor) -> Tensor:
        """Selected candidates and rivals (B, H, 2K, 2D) -> slots (B, H, K, 2D)."""
        own, rivals = (weight.to(chosen.dtype) for weight in self._weights(z))
        selected, others = (chosen.detach() if self.hard else chosen).chunk(2, dim=2)
        mixture = own * selected + rivals @ others
        if not self.hard:
            return mixture
        return chosen[:, :, : self.sample_size] + (mixture - mixture.detach())

    def _weights(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """The weights of the relaxed slots, as `proxy_weights` returns them."""
        return proxy_weights(z, self.proxy, self.tau)

    def _slot_mask(self, sample: TokenSample, bias: Tensor | None) -> Tensor | None:
        """A bias to add to the scores (B, H, N, K), or a mask of slots (B, H, 1, K), or None for all slots."""
        filled = None if self.supports is not None else (sample.scores > NEVER / 2)[:, :, None]
        if bias is None:
            return filled
        columns = sample.index[:, :, None].expand(-1, -1, bias.shape[2], -1)
        slots = F.pad(bias, (0, 2 * self.sample_size)).gather(3, columns).clamp(min=NEVER)
        return slots if filled is None else slots.masked_fill(~filled, -torch.inf)


class ScoreLinear(nn.Linear):
    """A linear map in the type of its weights, under autocast too: in 16 bits, many tokens would have equal scores."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, dim) -> (B, N, H)."""
        if not torch.is_autocast_enabled(x.device.type):
            return super().forward(x)
        with torch.autocast(x.device.type, enabled=False):
            return super().forward(x.to(self.weight.dtype))


class _Supports(nn.Module):
    """Learned candidates in addition to the tokens, with learned scores: `number` for each head."""

    def __init__(self, num_heads: int, number: int, head_dim: int, std: float) -> None:
        super().__init__()
        # scores must differ: the choice between two equal ones would depend on the batch
        self.scores = nn.Parameter(std * torch.randn(num_heads, number))
        self.keys = nn.Parameter(std * torch.randn(num_heads, number, head_dim))
        self.values = nn.Parameter(std * torch.randn(num_heads, number, head_dim))


def proxy_weights(z: Tensor, proxy: Proxy, tau: float) -> tuple[Tensor, Tensor]:
    """The weights of a relaxed slot: of its candidate (B, H, K, 1) and of each rival (B, H, K, K); rows sum to 1.

    `z` (B, H, 2K) holds the scores of the selected candidates, then of the rivals. `pairwise` (section 4.2) compares
    the candidate with every rival separately, `softmax` (algorithm 2) with all of them at once.
    """
    selected, rivals = (z / tau).chunk(2, dim=-1)
    if proxy == "pairwise":
        wins = (selected[..., :, None] - rivals[..., None, :]).sigmoid()
        return wins.mean(-1, keepdim=True), (1 - wins) / wins.shape[-1]
    own = (selected - rivals.logsumexp(-1, keepdim=True)).sigmoid()[..., None]
    return own, (1 - own) * rivals.softmax(-1)[..., None, :]


def gumbel_noise(like: Tensor) -> Tensor:
    """Standard Gumbel noise of the shape and type of `like`."""
    exponential = torch.empty_like(like).exponential_()
    return -exponential.clamp(min=torch.finfo(like.dtype).tiny).log()  # torch can draw an exact 0
