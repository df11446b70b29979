"""Token mixing: the contract, one file per attention, and how an attention is built from its options."""

from __future__ import annotations

from sliceformer_lab.attention.base import Attention, LayerSpec
from sliceformer_lab.attention.hybrid import member
from sliceformer_lab.config.schema import Node, check_options, construct

__all__ = ["Attention", "LayerSpec", "attention_class", "build_attention"]


def attention_class(options: Node, index: int = 0) -> type[Attention]:
    """The class of layer `index` under an attention node, its options checked, nothing built.

    Raises ConfigError if the options do not fit its signature.
    """
    node, where = member(options, index)
    cls: type[Attention] = check_options(node, where)
    return cls


def build_attention(options: Node, spec: LayerSpec) -> Attention:
    """The attention of one layer, from an attention node and what the encoder decides.

    Raises ConfigError if the options do not fit, with one another or with `spec`.
    """
    node, where = member(options, spec.index)
    attention: Attention = construct(node, spec, where=where)
    return attention
