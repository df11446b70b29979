"""Every file under conf composes, lists every option that its target has, and explains each."""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import cycle
from typing import Any

import pytest
import yaml
from support.yaml_options import as_yaml, folded

from sliceformer_lab.config.compose import CONF_DIR, compose_root, option_names
from sliceformer_lab.config.schema import check_node, locate, schema

# conf/attention, encoder and block have tests of their own, conf/recipe too
GROUPS = ("task", "data", "optim", "pretrain", "callbacks", "logger")
OPTIONS = [(group, name) for group in GROUPS for name in option_names(group)]
CHOICES = [
    f"{group.name}={name}"
    for group in sorted(CONF_DIR.iterdir())
    if group.is_dir() and group.name not in ("attention", "task", "recipe", "analysis")
    for name in option_names(group.name)
]
PAIRS = list(zip(option_names("attention"), cycle(option_names("task")), strict=False))  # each of both once


def test_no_two_option_files_say_the_same() -> None:
    contents: dict[str, list[str]] = {}
    for file in CONF_DIR.rglob("*.yaml"):
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        if content:  # scale/full is nothing but a comment
            alike = contents.setdefault(json.dumps(content, sort_keys=True), [])
            alike.append(file.relative_to(CONF_DIR).as_posix())
    assert [files for files in contents.values() if len(files) > 1] == []


@cache
def nodes(group: str, name: str) -> list[dict[str, Any]]:
    """The nodes with a target that an option brings."""
    node = compose_root([f"{group}={name}"])[group]
    return [part for part in (node.values() if group == "callbacks" else [node]) if part]


@pytest.mark.parametrize("choice", CHOICES)
def test_every_option_composes(choice: str) -> None:
    group, _, name = choice.partition("=")
    assert compose_root([choice])["hydra"]["runtime"]["choices"][group] == name


@pytest.mark.parametrize(("attention", "task"), PAIRS)
def test_every_attention_and_every_task_compose(attention: str, task: str) -> None:
    """Pairs are enough: neither group may write what the other does."""
    composed = compose_root([f"attention={attention}", f"task={task}"])
    assert composed["attention"] == compose_root([f"attention={attention}"])["attention"]
    assert composed["task"] == nodes("task", task)[0]


@pytest.mark.parametrize(("group", "name"), OPTIONS)
def test_yaml_lists_every_option_and_nothing_else(group: str, name: str) -> None:
    for node in nodes(group, name):
        assert set(node) - {"_target_"} == set(schema(locate(node["_target_"])))


@pytest.mark.parametrize("name", option_names("trainer"))
def test_options_of_the_trainer_are_lightnings(name: str) -> None:
    check_node(nodes("trainer", name)[0], "trainer")


@pytest.mark.parametrize(("group", "name"), OPTIONS)
def test_yaml_named_after_its_class_holds_the_defaults(group: str, name: str) -> None:
    for node in nodes(group, name):
        target = locate(node["_target_"])
        if folded(target.__name__) == folded(name):
            defaults = {name: as_yaml(default) for name, (_, default) in schema(target).items() if default is not ...}
            assert {name: node[name] for name in defaults} == defaults


def explained_options(group: str, name: str) -> set[str]:
    """The options that a file, or the one it starts from, has a comment on."""
    text = (CONF_DIR / group / f"{name}.yaml").read_text(encoding="utf-8")
    parents = re.findall(r"^defaults: \[(\w+)", text, re.M)
    own = set(re.findall(r"^\s*(\w+):.* # \S", text, re.M))
    return own.union(*(explained_options(group, parent) for parent in parents))


@pytest.mark.parametrize(("group", "name"), [*OPTIONS, *(("trainer", name) for name in option_names("trainer"))])
def test_file_says_what_it_is_and_explains_each_option(group: str, name: str) -> None:
    text = (CONF_DIR / group / f"{name}.yaml").read_text(encoding="utf-8")
    assert text.removeprefix("# @package _global_\n").startswith("# ")
    assert {key for node in nodes(group, name) for key in node} - {"_target_"} <= explained_options(group, name)
