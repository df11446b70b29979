"""The plan that a command records in its folder before the first run, so that it can go on there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.runs.files import write_json

OPERATORS = "operators"  # key of a plan


def record_plan(
    file: Path, facts: Mapping[str, Any], of_this_start: Mapping[str, Any], operators: Mapping[str, str]
) -> dict[str, Any]:
    """Write a plan with these facts, or find that the file holds the same; returns its content.

    `operators` are the digests of attentions by name. Those that the file does not have yet are added to it.
    Raises ConfigError for a damaged plan, for one of another protocol, and for other facts or operators.
    """
    if not file.exists():
        write_json(file, {**of_this_start, **facts})
    try:
        there: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        is_earlier = there.get("protocol") != facts["protocol"]
        changed = [] if is_earlier else sorted(key for key in facts if there[key] != facts[key])
        known = dict(there.get(OPERATORS, {}))
    except (OSError, ValueError, RecursionError, AttributeError, TypeError, KeyError) as error:
        raise ConfigError(f"{file} cannot be read as the plan of {file.stem} ({error})") from error
    if is_earlier:
        raise ConfigError(
            f"{file.parent} holds results of {file.stem} by an earlier protocol, which cannot go on; choose another "
            "folder="
        )
    changed += [f"the code of {name}" for name, digest in operators.items() if known.get(name, digest) != digest]
    if changed:
        raise ConfigError(
            f"{file.parent} holds results of {file.stem} that differs in {', '.join(changed)}; choose another folder="
        )
    if new := {name: digest for name, digest in operators.items() if name not in known}:
        there[OPERATORS] = {**known, **new}
        write_json(file, there)
    return there
