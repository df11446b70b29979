"""Checks an attention against the contract and prints a table."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from sliceformer_lab.attention.contract import CHECKS, broken_rule, rule_of
from sliceformer_lab.config.hybrid import attention_nodes
from sliceformer_lab.config.schema import check_node, schema
from sliceformer_lab.errors import LabError
from sliceformer_lab.runs.printed_table import print_table

YAML_RULE = "The YAML gives a value to every option of the constructor."


def check_contract(name: str, node: Mapping[str, Any]) -> None:
    """Prints each rule of the contract with `ok` or what breaks it. Raises LabError if one is broken."""
    kinds = list(dict.fromkeys(layer.target for layer in attention_nodes(node)))
    missing = sorted(set(schema(check_node(node, "attention").target)) - set(node))
    faults = {YAML_RULE: f"it lacks {', '.join(missing)}" if missing else None}
    for check in CHECKS:
        faults[rule_of(check)] = broken_rule(check, node)
    classes = [
        f"{k.__qualname__} in {inspect.getfile(k)}, {getattr(k, 'complexity', 'no complexity given')}" for k in kinds
    ]
    table = Table("rule", "", title=f"{name}: {', '.join(classes)}")
    for rule, fault in faults.items():
        table.add_row(rule, "ok" if fault is None else Text(f"BROKEN: {fault}", style="red"))
    print_table(table)
    broken = sum(fault is not None for fault in faults.values())
    if broken:
        raise LabError(f"attention={name} breaks {broken} of {len(faults)} rules")
