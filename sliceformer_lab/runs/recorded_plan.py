"""The plan that a command records in its folder before the first run, so that it can go on there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.runs.files import write_json


def record_plan(file: Path, facts: Mapping[str, Any], of_this_start: Mapping[str, Any]) -> dict[str, Any]:
    """Write a plan with these facts, or find that the file holds the same; returns its content.

    Raises ConfigError for a damaged plan, for one of another protocol, and for other facts.
    """
    if not file.exists():
        write_json(file, {**of_this_start, **facts})
    try:
        there: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        is_earlier = there.get("protocol") != facts["protocol"]
        changed = [] if is_earlier else sorted(key for key in facts if there[key] != facts[key])
    except (OSError, ValueError, RecursionError, AttributeError, KeyError) as error:
        raise ConfigError(f"{file} cannot be read as the plan of {file.stem} ({error})") from error
    if is_earlier:
        raise ConfigError(
            f"{file.parent} holds results of {file.stem} by an earlier protocol, which cannot go on; choose another "
            "folder="
        )
    if changed:
        raise ConfigError(
            f"{file.parent} holds results of {file.stem} that differs in {', '.join(changed)}; choose another folder="
        )
    return there
