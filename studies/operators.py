"""The operators that the study of random tokens compares, each built as a layer of a model builds it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from pytorch_lightning import seed_everything
from pytorch_lightning.utilities.seed import isolate_rng

from sliceformer_lab.attention import Attention, LayerSpec, build_layer
from sliceformer_lab.config.compose import load_option

# Options of conf/attention, in the order of figures and tables: controls that keep the rank, then published operators.
PERMUTATIONS = (
    "identity",
    "random_permutation",
    "csp_shift_only",
    "csp",
    "csp_random_order",
    "csp_reference",
    "sliceformer",
    "sliceformer_interleave",
    "sliceformer_max",
)
MIXERS = ("mean", "depthwise_conv", "fnet")  # the convolution has its initial weights
SHOWN_AS = {
    "random_permutation": "random permutation",
    "csp_shift_only": "circular shift",
    "csp": "CSP G=2",
    "csp_random_order": "CSP G=2, random order",
    "csp_reference": "CSP G=2, channel0",
    "sliceformer": "complete sort",
    "sliceformer_interleave": "interleaved sort",
    "sliceformer_max": "max exchange",
    "depthwise_conv": "depthwise conv",
    "mha": "softmax MHA",
    "fnet": "FNet",
}


def build_operators(names: Iterable[str], spec: LayerSpec, seed: int) -> dict[str, Attention]:
    """The attentions with these names for one layer, in float64 and evaluation mode.

    Their random numbers come from `seed`; global generators keep their state.
    Raises ConfigError for options that do not fit the layer.
    """
    with isolate_rng():
        built = {}
        for name in names:
            seed_everything(seed, verbose=False)
            built[name] = build_layer(_option(name), spec).double().eval()
    return built


@cache  # composing an option takes a good part of a second
def _option(name: str) -> dict[str, Any]:
    return load_option("attention", name)


def shown_as(name: str) -> str:
    """The name of an attention in figures and tables."""
    return SHOWN_AS.get(name, name)
