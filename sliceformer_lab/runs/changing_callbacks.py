"""The callbacks of a configuration that can change what its run scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# of conf/callbacks: they watch or save a run, and change no score
OBSERVERS = {"guard", "epoch_seed", "checkpoints", "throughput", "progress", "spectrum"}


def changing_callbacks(config: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the callbacks that can change a score, by name; the class of one without options."""
    found = {}
    for name, node in config["callbacks"].items():
        if name not in OBSERVERS:
            options = {key: value for key, value in node.items() if key != "_target_"}
            found[name] = options or node["_target_"]
    return found
