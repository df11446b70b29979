"""Pooling: from tokens to one vector per sample."""

from __future__ import annotations

from typing import Literal, Protocol, runtime_checkable

from torch import Tensor, nn

from sliceformer_lab.attention.base import ALONE, BlockInputs, LayerSpec
from sliceformer_lab.batch import Padding, fill_padding
from sliceformer_lab.encoder.encoder_options import EncoderOptions
from sliceformer_lab.encoder.set_block import PMA
from sliceformer_lab.errors import ConfigError

PoolMode = Literal["cls", "mean", "max", "softmax", "pma", "ref_min", "ref_max"]


@runtime_checkable
class ReferenceSort(Protocol):
    """An attention that can sort along its channel 0 and return that channel."""

    reference: bool  # whether its options make it sort so

    def reference_channel(self, v: Tensor, given: BlockInputs = ALONE, mixed: Tensor | None = None) -> Tensor:
        """Channel 0 of what it sorts, for values (B, N, H*D) and what it made of them in this pass. -> (B, N)."""


class Pool(nn.Module):
    """One vector per sample from its real tokens. (B, N, C) -> (B, C).

    cls: token 0; mean, max: per channel; softmax: mean weighted by the softmax of one learned score per token (the
    readout of SAMSA's published code); pma: attention of a learned seed to the tokens (Set Transformer); ref_min,
    ref_max: the token at which channel 0 of the last attention's values is smallest or largest. After an aligned sort,
    this token holds the extreme of every channel (CSP, equations 4-5).
    """

    def __init__(self, mode: PoolMode, encoder: EncoderOptions) -> None:
        super().__init__()
        self.mode = mode
        self.pma = PMA(LayerSpec(dim=encoder.dim, num_heads=encoder.num_heads)) if mode == "pma" else None
        self.score = nn.Linear(encoder.dim, 1) if mode == "softmax" else None
        self.needs_reference = mode in ("ref_min", "ref_max")

    def check(self, attention: nn.Module) -> None:
        """Raises ConfigError if the mode needs a reference channel that the encoder's last attention does not have."""
        if self.needs_reference and not (isinstance(attention, ReferenceSort) and attention.reference):
            raise ConfigError(
                f"pool={self.mode} needs a last attention that sorts along a reference channel, which "
                f"{type(attention).__name__} does not; choose attention=csp attention.reference=channel0 or pool=mean"
            )

    def forward(self, x: Tensor, padding: Padding | None = None, reference: Tensor | None = None) -> Tensor:
        """(B, N, C) -> (B, C); `reference` (B, N) is the second output of `Encoder.with_reference`."""
        if self.pma is not None:
            return self.pma(x, padding).squeeze(1)
        if self.score is not None:
            weights = fill_padding(self.score(x), padding, float("-inf")).softmax(dim=1)  # (B, N, 1)
            return (weights * x).sum(dim=1)
        match self.mode:
            case "cls":
                return x[:, 0]
            case "mean":
                if padding is None:
                    return x.mean(dim=1)
                return fill_padding(x, padding).sum(dim=1) / padding.lengths[:, None]
            case "max":
                return fill_padding(x, padding, float("-inf")).amax(dim=1)
            case _:
                return self._at_reference(x, padding, reference)

    def _at_reference(self, x: Tensor, padding: Padding | None, reference: Tensor | None) -> Tensor:
        if reference is None:
            raise ValueError(f"pool={self.mode} needs the reference channel that Encoder.with_reference returns")
        key = reference if self.mode == "ref_max" else -reference
        token = fill_padding(key[..., None], padding, float("-inf")).argmax(dim=1)  # (B, 1)
        return x.take_along_dim(token[..., None], dim=1).squeeze(1)
