"""Builds the optional CPU kernel; everything else about the package is in pyproject.toml."""

from __future__ import annotations

import sys
from pathlib import Path

from setuptools import setup

sys.path.insert(0, str(Path(__file__).resolve().parent))  # an isolated build does not look here
from kernel_build import COMMANDS, kernel_extension

setup(ext_modules=[kernel_extension("shift_sort", "csrc")], cmdclass=COMMANDS)
