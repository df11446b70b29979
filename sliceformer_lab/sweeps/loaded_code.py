"""Imported by the process that jobs are forked from: all of them record the commit of the code that it has loaded."""

from __future__ import annotations

from sliceformer_lab.runs.commit import git_commit

git_commit()
