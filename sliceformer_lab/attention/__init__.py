"""Token mixing: the contract in `base`, and one file per attention."""

from __future__ import annotations

from sliceformer_lab.attention.base import ALONE, Attention, BlockInputs, LayerSpec
from sliceformer_lab.config.hybrid import attention_nodes
from sliceformer_lab.config.schema import Node

__all__ = ["ALONE", "Attention", "BlockInputs", "LayerSpec", "build_layer"]


def build_layer(attention: Node, spec: LayerSpec) -> Attention:
    """The attention of layer `spec.index`, from an attention node and what the encoder decides.

    Raises ConfigError if the options do not fit, with one another or with `spec`.
    """
    nodes = attention_nodes(attention)
    layer: Attention = nodes[spec.index % len(nodes)].build(spec)
    return layer
