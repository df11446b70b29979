"""Workflows, issue forms and lists of versions: files that only other programs read."""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest
import yaml
from support.other_process import run_python

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize(
    ("kind", "files"), [("github-workflows", WORKFLOWS), ("github-issue-forms", FORMS)], ids=["workflows", "forms"]
)
def test_a_file_for_github_fits_its_schema(kind: str, files: list[Path]) -> None:
    assert files
    done = run_python("-m", "check_jsonschema", "--builtin-schema", f"vendor.{kind}", *map(str, files))
    assert done.returncode == 0, done.stdout + done.stderr


def test_workflows_call_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = {name for file in WORKFLOWS for name in re.findall(r"make ([\w-]+)", file.read_text())}
    assert {"install", "lint", "types", "test", "site", "test-versions"} <= called <= targets


def test_every_yaml_file_of_the_project_can_be_read() -> None:
    files = [*ROOT.glob("conf/**/*.yaml"), *ROOT.glob(".github/**/*.yml"), ROOT / ".pre-commit-config.yaml"]
    assert len(files) > 200 and all(isinstance(yaml.safe_load(file.read_text("utf-8")), dict | None) for file in files)


def test_the_lock_file_has_a_version_of_every_package_that_the_project_needs() -> None:
    text = (ROOT / "requirements-dev.lock").read_text()
    locked = set(re.findall(r"^([\w.-]+)==", text, re.MULTILINE))
    extras = PROJECT["optional-dependencies"]
    needed = {re.split(r"[\[<>=]", line)[0] for line in chain(PROJECT["dependencies"], *extras.values())}
    # not in `dev`: trackio wants a Pillow below 13, executorch fixes the versions of other packages
    assert {name.lower() for name in needed} - {"sliceformer-lab", "trackio", "executorch"} - locked == set()
    assert "://" not in text


def test_changelog_and_citation_have_the_version() -> None:
    version = PROJECT["version"]
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text()
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text()
