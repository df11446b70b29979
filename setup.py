"""Lists the packages and builds the optional CPU kernel; everything else about the package is in pyproject.toml."""

from __future__ import annotations

import sys
from pathlib import Path

from setuptools import find_packages, setup

OPERATOR = "packages/shift-sort"  # a package of its own too; here it is the room `permute`
sys.path.insert(0, str(Path(__file__).resolve().parent / OPERATOR))
from kernel_build import COMMANDS, kernel_extension  # noqa: E402

# Folders elsewhere in the repository, sub-packages once installed.
OUTSIDE = {"tasks": "tasks", "callbacks": "callbacks", "conf": "conf", "permute": f"{OPERATOR}/shift_sort"}

setup(
    packages=[*find_packages(include=["sliceformer_lab*"]), *(f"sliceformer_lab.{name}" for name in OUTSIDE)],
    package_dir={f"sliceformer_lab.{name}": folder for name, folder in OUTSIDE.items()},
    ext_modules=[kernel_extension("sliceformer_lab.permute", f"{OPERATOR}/csrc")],
    cmdclass=COMMANDS,
)
