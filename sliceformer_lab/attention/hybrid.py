"""Hybrids: a pattern of attentions, repeated over the layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from sliceformer_lab.attention.base import Attention, LayerSpec
from sliceformer_lab.config.schema import ConfigError, Node, check_options, construct


def hybrid(
    spec: LayerSpec,
    *,
    pattern: Annotated[tuple[str, ...], Field(min_length=1)] = ("csp", "mha"),
    options: dict[str, dict[str, Any]] | None = None,
    members: dict[str, dict[str, Any]] | None = None,
) -> Attention:
    """The attention that `pattern` gives layer `spec.index`; the pattern repeats.

    `members` holds the node of every name with `options` merged in (`config.compose.resolve_hybrid`).
    Raises ConfigError if a name has no node and if a node does not fit its attention.
    """
    del options
    node, where = _choose(pattern, members, spec.index)
    chosen: Attention = construct(node, spec, where=where)
    return chosen


def member(node: Node, index: int) -> tuple[Node, str]:
    """The node that layer `index` is built from and its name in messages; the node itself unless it is a hybrid.

    Raises ConfigError if the options of a hybrid do not fit or its members are not resolved.
    """
    if check_options(node, "attention") is not hybrid:
        return node, "attention"
    return _choose(node["pattern"], node["members"], index)


def _choose(pattern: Sequence[str], members: Mapping[str, Node] | None, index: int) -> tuple[Node, str]:
    name = pattern[index % len(pattern)]
    if not members or name not in members:
        raise ConfigError(
            f"attention: members has no node for {name}; sliceformer_lab.config.compose.resolve_hybrid fills it"
        )
    return members[name], f"attention.options.{name}"
