"""Train and compare replacements of multi-head attention on one shared encoder.

For use outside the command line: `build_attention`, `build_encoder`, `load_export`, `load_run`, `load_sweep`, `run`,
`register_attentions`, `swap`, `sweep`. They are imported on first use, so that `import sliceformer_lab` does not import
torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sliceformer_lab.__main__ import run, sweep
    from sliceformer_lab.attention import build_attention
    from sliceformer_lab.encoder.factory import build_encoder
    from sliceformer_lab.encoder.swap import register_attentions, swap
    from sliceformer_lab.runs.job_table import load_sweep
    from sliceformer_lab.training.saved.exported_model import load_export
    from sliceformer_lab.training.saved.saved_run import load_run

_MODULE_OF = {
    "build_attention": "sliceformer_lab.attention",
    "build_encoder": "sliceformer_lab.encoder.factory",
    "load_export": "sliceformer_lab.training.saved.exported_model",
    "load_run": "sliceformer_lab.training.saved.saved_run",
    "load_sweep": "sliceformer_lab.runs.job_table",
    "register_attentions": "sliceformer_lab.encoder.swap",
    "run": "sliceformer_lab.__main__",
    "swap": "sliceformer_lab.encoder.swap",
    "sweep": "sliceformer_lab.__main__",
}

__all__ = [
    "build_attention",
    "build_encoder",
    "load_export",
    "load_run",
    "load_sweep",
    "register_attentions",
    "run",
    "swap",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
