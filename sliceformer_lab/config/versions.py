"""What differs between the versions of Hydra and OmegaConf that we support; the only place that asks for them."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import hydra
from omegaconf import OmegaConf

# Hydra 1.3 has older defaults unless it is told; 1.4 has the defaults of 1.3 and deprecates the argument.
HYDRA_DEFAULTS = {"version_base": "1.3"} if hydra.__version__.startswith("1.3.") else {}


def register_resolver(name: str, resolver: Callable[..., Any], *, use_cache: bool = False) -> None:
    """Gives a resolver its name, in place of an earlier one. OmegaConf 2.4 renames `register_new_resolver`."""
    renamed = "use_cache" in signature(OmegaConf.register_resolver).parameters
    register = getattr(OmegaConf, "register_resolver" if renamed else "register_new_resolver")
    register(name, resolver, replace=True, use_cache=use_cache)
