"""The contract of the user's own operators. The tests check ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from sliceformer_lab.attention import contract
from sliceformer_lab.config.hybrid import attention_nodes
from sliceformer_lab.config.schema import Node

RULES_OF_SCORES = (  # without which a score is that of something else
    contract.check_padding_changes_nothing,
    contract.check_evaluation_is_deterministic,
    contract.check_checkpoint_holds_everything,
    contract.check_causal_layer_reads_no_later_token,
)


def note_broken_rules(
    name: str, attention: Node, checks: Sequence[Callable[[contract.Factory], None]] = contract.CHECKS
) -> str | None:
    """A sentence on the rules that a user's own operator breaks; None for ours. Random numbers stay as they were."""
    if all(layer.target.__module__.startswith("sliceformer_lab.") for layer in attention_nodes(attention)):
        return None
    with torch.random.fork_rng(range(torch.cuda.device_count())):  # named, or torch warns of several
        broken = [contract.rule_of(check) for check in checks if contract.broken_rule(check, attention)]
    hint = f"`check attention={name}` says how, and its scores may be wrong"
    return f"{name} breaks rules of the contract ({' '.join(broken)}); {hint}" if broken else None
