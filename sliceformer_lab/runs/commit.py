"""The commit of this code, and the versions of its libraries."""

from __future__ import annotations

import hashlib
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path

from sliceformer_lab.runs.files import digest_of

PACKAGES = ("torch", "torchvision", "pytorch-lightning", "hydra-core", "timm", "numpy")
CODE = (":/sliceformer_lab", ":/tasks", ":/callbacks", ":/conf", ":/packages")  # from the top of the repository


@cache
def git_commit() -> str | None:
    """The commit of this code, as 125a6e4b0c1d or 125a6e4b0c1d-dirty-2f3a9c1b; None if it is not in its repository.

    The second has a digest of what is not committed, so that two versions of an edited file are not taken for one.

    It is that of the first call, when the code was loaded: a sweep runs this code to its end, whatever is committed.
    """
    return commit_of(Path(__file__))


def commit_of(file: Path) -> str | None:
    """The commit of the repository that tracks a file of this code; None if none does.

    A copy that is installed inside another repository is not tracked there.
    """
    try:
        if not _ask_git(file.parent, "ls-files", file.name):
            return None
        commit = _ask_git(file.parent, "rev-parse", "--short=12", "HEAD")
        changes = [_ask_git(file.parent, "diff", "HEAD", "--binary", "--", *CODE)]
        top = Path(_ask_git(file.parent, "rev-parse", "--show-toplevel"))
        new = _ask_git(top, "ls-files", "--others", "--exclude-standard", "-z", "--", *CODE).split("\0")
        changes += [f"{name} {digest_of(top / name)}" for name in new if name]
    except (OSError, subprocess.SubprocessError):
        return None
    changed = "\n".join(change for change in changes if change)
    return f"{commit}-dirty-{hashlib.sha256(changed.encode()).hexdigest()[:8]}" if changed else commit


def _ask_git(folder: Path, *words: str) -> str:
    """What git prints about the repository of a folder. Raises OSError or SubprocessError."""
    answer = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=5, check=True)
    return answer.stdout.strip()


def package_versions() -> dict[str, str]:
    """The versions of the libraries that results depend on."""
    return {package: version(package) for package in PACKAGES}
