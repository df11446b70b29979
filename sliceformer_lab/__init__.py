"""Train and compare replacements of multi-head attention on one shared encoder.

For use outside the command line: `attention`, `build_encoder`, `load_run`, `swap_attention`. They are imported when
first used, so that `import sliceformer_lab` does not import torch.

A trap: `attention` is also the name of a sub-package, and importing anything from it sets that name here for good.
So the sub-package itself is what one calls, and this package makes it callable whenever it is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sliceformer_lab import attention
    from sliceformer_lab.attention.base import Attention
    from sliceformer_lab.encoder.factory import build_encoder
    from sliceformer_lab.encoder.timm_models import swap_attention
    from sliceformer_lab.training.saved_run import load_run

__all__ = ["attention", "build_encoder", "load_run", "swap_attention"]

_MODULE_OF = {
    "build_encoder": "sliceformer_lab.encoder.factory",
    "load_run": "sliceformer_lab.training.saved_run",
    "swap_attention": "sliceformer_lab.encoder.timm_models",
}


def __getattr__(name: str) -> Any:
    if name == "attention":
        return import_module("sliceformer_lab.attention")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _AttentionPackage(ModuleType):
    """The sub-package `attention`, callable."""

    def __call__(
        self,
        name: str,
        *,
        dim: int,
        num_heads: int,
        max_len: int | None = None,
        head_dim: int | None = None,
        grid: tuple[int, int] | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> Attention:
        """The attention of conf/attention/<name>.yaml, with `overrides` in place of its defaults.

        `max_len` is the longest sequence and `grid` the rows and columns of an image's patches, the last tokens of it;
        some attentions need them. Raises ConfigError for an unknown name and for options that do not fit.
        """
        from sliceformer_lab.attention.base import LayerSpec
        from sliceformer_lab.encoder.timm_models import attention_by_name

        num_prefix = max_len - grid[0] * grid[1] if max_len and grid else 0
        spec = LayerSpec(
            dim=dim, num_heads=num_heads, max_len=max_len, head_dim=head_dim, num_prefix=num_prefix, grid=grid
        )
        return attention_by_name(name, spec, overrides)


class _Package(ModuleType):
    """This package. Python's import sets a sub-package as attribute of its parent, and so passes through here."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "attention" and isinstance(value, ModuleType):
            value.__class__ = _AttentionPackage
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
