"""The attention of each layer: one node for all layers, or a pattern of attentions that repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from sliceformer_lab.config.compose import load_option, option_names
from sliceformer_lab.config.schema import CheckedNode, ConfigError, Node, check_node


@dataclass(frozen=True, kw_only=True)
class Hybrid:
    """The options of `conf/attention/hybrid.yaml`. `attention_nodes` expands them; the layers know only the result."""

    pattern: Annotated[tuple[str, ...], Field(min_length=1)] = ("csp", "mha")
    options: dict[str, dict[str, Any]] | None = None  # of attentions in the pattern, by name


def hybrid_members(attention: object) -> list[str]:
    """The known attentions in the pattern of attention=hybrid, whose nodes a composed configuration does not hold."""
    if not isinstance(attention, Mapping) or attention.get("_target_") != f"{__name__}.{Hybrid.__name__}":
        return []
    pattern = attention.get("pattern")
    return sorted({*option_names("attention")}.intersection(map(str, pattern))) if isinstance(pattern, list) else []


def member_options(attention: Mapping[str, Any]) -> dict[str, Any]:
    """All options of a hybrid's attentions, those of their files included, because the files may change later."""
    found = dict(attention.get("options") or {})
    for name in hybrid_members(attention):
        of_file = {key: value for key, value in load_option("attention", name).items() if key != "_target_"}
        found[name] = of_file | (found.get(name) or {})
    return found


def attention_nodes(attention: Node | Sequence[CheckedNode], depth: int | None = None) -> tuple[CheckedNode, ...]:
    """The checked node of each of `depth` layers; with None, one for each entry of a hybrid's pattern.

    Each attention is checked once, however many layers it has. Nodes that are checked already are returned as they
    are. Raises ConfigError for options that do not fit, for a pattern that names an unknown attention or a hybrid, and
    for `options` of an attention outside the pattern.
    """
    if not isinstance(attention, Mapping):
        return tuple(attention)
    node = check_node(attention, "attention")
    nodes = _expand_pattern(node) if node.target is Hybrid else [node]
    return tuple(nodes[index % len(nodes)] for index in range(len(nodes) if depth is None else depth))


def _expand_pattern(hybrid: CheckedNode) -> list[CheckedNode]:
    """The checked node of each entry of the pattern. Raises ConfigError with every fault at once."""
    wanted: Hybrid = hybrid.build()
    options = wanted.options or {}
    members: dict[str, CheckedNode] = {}
    faults = [
        f"{hybrid.where}.options.{name}: {name} is not in the pattern {list(wanted.pattern)}"
        for name in options
        if name not in wanted.pattern
    ]
    for name in dict.fromkeys(wanted.pattern):
        where = f"{hybrid.where}.options.{name}"
        try:
            node = load_option("attention", name) | options.get(name, {})
            members[name] = check_node(node, where)
            if members[name].target is Hybrid:
                faults.append(f"{hybrid.where}.pattern: {name} is itself a hybrid; name plain attentions")
        except ConfigError as error:
            faults.append(str(error))
    if faults:
        raise ConfigError("; ".join(faults))
    return [members[name] for name in wanted.pattern]
