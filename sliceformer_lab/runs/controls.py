"""Control operators: attentions that serve only as a comparison for others."""

from __future__ import annotations

from functools import cache
from typing import Any

from omegaconf import OmegaConf

from sliceformer_lab.config.compose import CONF_DIR, option_names
from sliceformer_lab.config.schema import locate


@cache
def controls() -> tuple[str, ...]:
    """The attentions in conf/attention whose class has `source = "control"`."""
    return tuple(name for name in option_names("attention") if _source(name) == "control")


def is_control(attention: str) -> bool:
    """Whether an attention is a control; False for names that are not in conf/attention."""
    return attention in controls()


def _source(name: str) -> str | None:
    node: Any = OmegaConf.load(CONF_DIR / "attention" / f"{name}.yaml")
    target = node.get("_target_")  # None for a preset, which inherits its target from `defaults`
    return None if target is None else getattr(locate(str(target)), "source", None)
