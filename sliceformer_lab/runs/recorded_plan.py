"""The plan that a command records in its folder before the first run, so that it can go on there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sliceformer_lab.config.schema import ConfigError


def read_same_plan(file: Path, facts: Mapping[str, Any], what: str) -> dict[str, Any]:
    """A recorded plan with these facts, of `what` such as "a map". Raises ConfigError for another or a damaged one."""
    try:
        there: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        changed = sorted(key for key in facts if there[key] != facts[key])
    except (OSError, ValueError, RecursionError, TypeError, KeyError) as error:
        raise ConfigError(f"{file} cannot be read as the plan of {what} ({error})") from error
    if changed:
        raise ConfigError(f"{file.parent} holds {what} that differs in {', '.join(changed)}; choose another folder=")
    return there
