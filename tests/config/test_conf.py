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

from sliceformer_lab.config.compose import CONF_DIR, compose_root, load_option, option_names
from sliceformer_lab.config.hybrid import attention_nodes
from sliceformer_lab.config.schema import check_node, locate, schema

# conf/encoder and block have tests of their own, conf/recipe too
GROUPS = ("attention", "task", "data", "optim", "pretrain", "callbacks", "logger")
COMPOSED = sorted(
    group.name
    for group in CONF_DIR.iterdir()
    if group.is_dir() and group.name not in ("attention", "task", "recipe", "analysis")
)


def test_no_two_option_files_say_the_same() -> None:
    contents: dict[str, list[str]] = {}
    for file in CONF_DIR.rglob("*.yaml"):
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        if content:  # scale/full is nothing but a comment
            alike = contents.setdefault(json.dumps(content, sort_keys=True), [])
            alike.append(file.relative_to(CONF_DIR).as_posix())
    assert [files for files in contents.values() if len(files) > 1] == []


@cache
def composed(group: str, name: str) -> dict[str, Any]:
    """The default configuration with an option."""
    return compose_root([f"{group}={name}"])


@cache
def nodes(group: str, name: str) -> list[dict[str, Any]]:
    """The nodes with a target that an option brings."""
    if group == "attention":
        return [load_option(group, name)]
    node = composed(group, name)[group]
    return [part for part in (node.values() if group == "callbacks" else [node]) if part]


@pytest.mark.parametrize("group", COMPOSED)
def test_every_option_composes(group: str) -> None:
    for name in option_names(group):
        assert composed(group, name)["hydra"]["runtime"]["choices"][group] == name


def test_a_task_and_an_attention_write_their_own_nodes_alone() -> None:
    for attention in option_names("attention"):
        assert "@package" not in (CONF_DIR / "attention" / f"{attention}.yaml").read_text(encoding="utf-8")
    for task, attention in zip(option_names("task"), cycle(option_names("attention")), strict=False):
        together = compose_root([f"task={task}", f"attention={attention}"])
        assert together["attention"] == load_option("attention", attention), (task, attention)
        assert together["task"] == nodes("task", task)[0], (task, attention)


@pytest.mark.parametrize("group", GROUPS)
def test_yaml_lists_every_option_and_nothing_else(group: str) -> None:
    for name in option_names(group):
        for node in nodes(group, name):
            assert set(node) - {"_target_"} == set(schema(locate(node["_target_"]))), name


@pytest.mark.parametrize("group", GROUPS)
def test_yaml_named_after_its_class_holds_the_defaults(group: str) -> None:
    for name in option_names(group):
        for node in nodes(group, name):
            target = locate(node["_target_"])
            if folded(target.__name__) == folded(name):
                options = schema(target).items()
                defaults = {option: as_yaml(default) for option, (_, default) in options if default is not ...}
                assert {option: node[option] for option in defaults} == defaults, name


def test_every_attention_has_a_yaml_named_after_its_class_and_passes_the_check_of_its_options() -> None:
    files = {folded(name) for name in option_names("attention")}
    for name in option_names("attention"):
        (node,) = nodes("attention", name)
        assert folded(locate(node["_target_"]).__name__) in files, name
        attention_nodes(node)


def test_options_of_the_trainer_are_lightnings() -> None:
    for name in option_names("trainer"):
        check_node(nodes("trainer", name)[0], "trainer")


def explained_options(group: str, name: str) -> set[str]:
    """The options that a file, or the one it starts from, has a comment on."""
    text = (CONF_DIR / group / f"{name}.yaml").read_text(encoding="utf-8")
    parents = re.findall(r"^defaults: \[(\w+)", text, re.M)
    own = set(re.findall(r"^\s*(\w+):.* # \S", text, re.M))
    return own.union(*(explained_options(group, parent) for parent in parents))


@pytest.mark.parametrize("group", [*GROUPS, "trainer"])
def test_file_says_what_it_is_and_explains_each_option(group: str) -> None:
    for name in option_names(group):
        text = (CONF_DIR / group / f"{name}.yaml").read_text(encoding="utf-8")
        assert text.removeprefix("# @package _global_\n").startswith("# "), name
        options = {key for node in nodes(group, name) for key in node} - {"_target_"}
        assert options <= explained_options(group, name), name
