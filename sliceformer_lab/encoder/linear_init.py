"""Initial weights of linear layers that differ from torch's: those of published codes."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from sliceformer_lab.encoder.base import EncoderBlock
from sliceformer_lab.encoder.encoder_options import EncoderOptions


def initialise_block(block: EncoderBlock, options: EncoderOptions) -> None:
    """Gives the projections of a block's attention and its other linear layers the weights of `options.linear_init`.

    Linear layers inside an attention, other than its projections, keep the weights of their own source.
    `lra`: Xavier uniform (Glorot & Bengio 2010), biases N(0, 1e-6^2), as in the code of the Long Range Arena (Tay et
    al. 2021; JAX, models/layers/common_layers.py and models/transformer/transformer.py). Its CLS token starts at 0,
    ours as in other encoders.
    `graphormer`: N(0, 0.02^2 / depth), biases 0, as in Graphormer's code (Ying et al. 2021; graphormer_layers.py).
    """
    if options.linear_init == "torch":
        return
    for linear in _linear_layers(block):
        if options.linear_init == "graphormer":
            start_small(linear, 0.02 / options.depth**0.5)
            continue
        nn.init.xavier_uniform_(linear.weight)
        if linear.bias is not None:
            nn.init.normal_(linear.bias, std=1e-6)


def initialise_head(head: nn.Module, options: EncoderOptions) -> None:
    """Gives the linear layers of a task's head the weights of `options.linear_init`.

    `lra`: Flax's default, a normal distribution of variance 1 / inputs that is cut at two deviations, biases 0.
    `graphormer`: as in its blocks.
    """
    if options.linear_init == "torch":
        return
    for linear in (module for module in head.modules() if isinstance(module, nn.Linear)):
        if options.linear_init == "graphormer":
            start_small(linear, 0.02 / options.depth**0.5)
            continue
        std = linear.in_features**-0.5 / _CUT_STD
        nn.init.trunc_normal_(linear.weight, std=std, a=-2 * std, b=2 * std)
        if linear.bias is not None:
            nn.init.zeros_(linear.bias)


_CUT_STD = 0.87962566  # of a standard normal distribution cut at two deviations


def _linear_layers(block: EncoderBlock) -> Iterator[nn.Linear]:
    attention = block.attention
    projections = (getattr(attention, name, None) for name in ("query", "key", "value", "out"))  # some share one
    yield from (part for part in projections if isinstance(part, nn.Linear))
    inside = set(attention.modules())
    yield from (part for part in block.modules() if isinstance(part, nn.Linear) and part not in inside)


def start_small(linear: nn.Linear, std: float) -> None:
    """Draws the weights from N(0, std^2) and sets the biases to 0."""
    nn.init.normal_(linear.weight, std=std)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
