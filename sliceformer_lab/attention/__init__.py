"""Token mixing: the contract, one file per attention, and how an attention is built from its options."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from sliceformer_lab.attention.base import Attention, LayerSpec
from sliceformer_lab.attention.hybrid import member
from sliceformer_lab.config import Node, check_options, construct

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


class _CallablePackage(ModuleType):
    """This package, made callable: in a notebook `sliceformer_lab.attention` is it, whatever was imported before."""

    def __call__(
        self,
        name: str,
        *,
        dim: int,
        num_heads: int,
        max_len: int | None = None,
        head_dim: int | None = None,
        grid: tuple[int, int] | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> Attention:
        """The attention of conf/attention/<name>.yaml, with `overrides` in place of its defaults.

        `max_len` is the longest sequence and `grid` the rows and columns of an image's patches; some attentions need
        them. Raises ConfigError for an unknown name and for options that do not fit.
        """
        from sliceformer_lab.library import attention_by_name  # it stands above this package and imports it

        spec = LayerSpec(dim=dim, num_heads=num_heads, max_len=max_len, head_dim=head_dim, grid=grid)
        return attention_by_name(name, spec, overrides)


sys.modules[__name__].__class__ = _CallablePackage
