"""The commit of this code, and the versions of its libraries."""

from __future__ import annotations

import subprocess
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("torch", "torchvision", "pytorch-lightning", "hydra-core", "timm", "numpy")


def git_commit() -> str | None:
    """The commit of this code, with -dirty for uncommitted changes; None outside a repository."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"]
    try:
        answer = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None


def package_versions() -> dict[str, str]:
    """The versions of the libraries that results depend on."""
    return {package: version(package) for package in PACKAGES}
