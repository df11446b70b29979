"""Data modules of the image YAMLs on miniature files, for the tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from support import official_files
from support.plans import prepared

from sliceformer_lab.config.compose import CONF_DIR
from sliceformer_lab.config.schema import build_object
from sliceformer_lab.data.images.base import ImageData
from sliceformer_lab.data.spec import LoadPlan


def node(name: str, root: Path) -> dict[str, Any]:
    options: dict[str, Any] = yaml.safe_load((CONF_DIR / "task" / f"{name}.yaml").read_text())["data"]
    return options | {key: str(root) for key in options if key == "root"}


def module(name: str, root: Path, plan: LoadPlan | None = None, /, **options: Any) -> ImageData:
    """The data module of a YAML on files in `root`, whose checksums are not the official ones."""
    defaults = {"root": str(root), "download": False, "verify": False, "num_workers": 0, "image_size": 32}
    known = node(name, root)
    fitting = {key: value for key, value in (defaults | options).items() if key in known}
    return build_object(known | fitting, *([plan] if plan else []), where="data")


def ready(name: str, root: Path, plan: LoadPlan | None = None, /, **options: Any) -> ImageData:
    """The data module on freshly written miniature files, set up."""
    if name != "digits" and not any(root.iterdir()):
        official_files.IMAGE_SETS[name](root)
    return prepared(module(name, root, plan, **options))
