"""Which attentions are controls: those that only tell what the others do beyond them."""

from __future__ import annotations

from functools import cache
from typing import Any

from omegaconf import OmegaConf

from sliceformer_lab.config.compose import CONF_DIR, option_names
from sliceformer_lab.config.schema import locate


@cache
def controls() -> tuple[str, ...]:
    """The attentions of conf/attention whose class names "control" as its source."""
    return tuple(name for name in option_names("attention") if _source(name) == "control")


def is_control(attention: str) -> bool:
    """Whether an attention is one of them; no attention of another version or of a user's own is."""
    return attention in controls()


def _source(name: str) -> str | None:
    node: Any = OmegaConf.load(CONF_DIR / "attention" / f"{name}.yaml")
    target = node.get("_target_")  # presets of others have none
    return None if target is None else getattr(locate(str(target)), "source", None)
