"""Train and compare replacements of multi-head attention on one shared encoder.

For use outside the command line: `attention`, `build_encoder`, `load_run`, `swap_attention`. They are imported when
first used, so that `import sliceformer_lab` does not import torch.

A trap: `attention` is the name of a sub-package, and importing anything from it sets that name here for good. So the
sub-package itself is what is called in `sliceformer_lab.attention("csp", dim=384, num_heads=6)`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sliceformer_lab import attention
    from sliceformer_lab.encoder.factory import build_encoder
    from sliceformer_lab.library import swap_attention
    from sliceformer_lab.record import load_run

__all__ = ["attention", "build_encoder", "load_run", "swap_attention"]

_MODULE_OF = {
    "build_encoder": "sliceformer_lab.encoder.factory",
    "load_run": "sliceformer_lab.record",
    "swap_attention": "sliceformer_lab.library",
}


def __getattr__(name: str) -> Any:
    if name == "attention":
        return import_module("sliceformer_lab.attention")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
