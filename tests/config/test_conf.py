"""Every file under conf composes, lists every option that its target has, and explains each."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest
import yaml
from support.yaml_options import as_yaml, folded

from sliceformer_lab.config.compose import CONF_DIR, compose_root, load_option, option_names, written_option
from sliceformer_lab.config.hybrid import attention_nodes
from sliceformer_lab.config.schema import check_node, locate, schema

GROUPS = ("attention", "task", "encoder", "block", "optim", "pretrain", "callbacks", "logger", "analysis")
HOLDS_DEFAULTS = (
    *(("block", "transformer"), ("block", "set"), ("block", "mega")),
    *(("callbacks", "default"), ("optim", "adam_cosine")),
)
TOGETHER = ("encoder", "block", "optim", "trainer", "pretrain", "callbacks", "logger", "launcher", "debug")
ALONE = ("study", "scale")  # which choose options of other groups


def test_no_two_option_files_say_the_same() -> None:
    contents: dict[str, list[str]] = {}
    for file in CONF_DIR.rglob("*.yaml"):
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        if content:  # scale/full is nothing but a comment
            alike = contents.setdefault(json.dumps(content, sort_keys=True), [])
            alike.append(file.relative_to(CONF_DIR).as_posix())
    assert [files for files in contents.values() if len(files) > 1] == []


@cache
def together(position: int) -> dict[str, Any]:
    """The configuration with the option at this position of each group in TOGETHER, whose options are independent."""
    names = {group: option_names(group) for group in TOGETHER}
    return compose_root([f"{group}={found[position % len(found)]}" for group, found in names.items()])


@cache
def composed(group: str, name: str) -> dict[str, Any]:
    """A configuration with an option; one of a task has an attention too, which takes turns."""
    position = option_names(group).index(name)
    if group == "task":
        return compose_root([f"task={name}", f"attention={attention_at(position)}"])
    return together(position) if group in TOGETHER else compose_root([f"{group}={name}"])


def attention_at(position: int) -> str:
    """The attention in this turn."""
    names = option_names("attention")
    return names[position % len(names)]


@cache
def nodes(group: str, name: str) -> list[dict[str, Any]]:
    """The nodes with a target that an option brings."""
    if group in ("attention", "analysis"):
        return [load_option(group, name)]
    if group == "task":
        return [composed(group, name)[node] for node in ("task", "data")]
    node = composed(group, name)[group]
    return [part for part in (node.values() if group == "callbacks" else [node]) if part]


def test_every_group_of_options_is_composed_here_or_elsewhere() -> None:
    groups = {folder.name for folder in CONF_DIR.iterdir() if folder.is_dir() and not folder.name.startswith("_")}
    assert groups == {*TOGETHER, *ALONE, "attention", "task", "recipe", "analysis", "paths"}


@pytest.mark.parametrize("group", [*TOGETHER, *ALONE])
def test_every_option_composes(group: str) -> None:
    for name in option_names(group):
        assert composed(group, name)["hydra"]["runtime"]["choices"][group] == name


def test_no_recipe_of_own_data_drops_attention_weights() -> None:  # which costs torch's fused kernel on a CPU
    own = [name for name in option_names("task") if name.endswith(("_csv", "_folder", "torchvision", "pyg"))]
    rates = {name: compose_root([f"task={name}", "attention=mha"])["encoder"]["attention_dropout"] for name in own}
    assert len(own) >= 8 and set(rates.values()) == {0.0}, rates


def test_a_task_and_an_attention_write_their_own_nodes_alone() -> None:
    for attention in option_names("attention"):
        assert "@package" not in (CONF_DIR / "attention" / f"{attention}.yaml").read_text(encoding="utf-8")
        starts_from = written_option("attention", attention).get("defaults", [])
        assert {*starts_from} <= {*option_names("attention"), "_self_"}, f"{attention} chooses an option elsewhere"
    for position, task in enumerate(option_names("task")):
        both, attention = composed("task", task), attention_at(position)
        assert both["attention"] == load_option("attention", attention), (task, attention)


@pytest.mark.parametrize("group", GROUPS)
def test_yaml_lists_every_option_and_nothing_else(group: str) -> None:
    for name in option_names(group):
        for node in nodes(group, name):
            assert set(node) - {"_target_"} == set(schema(locate(node["_target_"]))), name


@pytest.mark.parametrize("group", GROUPS)
def test_yaml_named_after_its_class_or_listed_here_holds_the_defaults(group: str) -> None:
    for name in option_names(group):
        for node in nodes(group, name):
            target = locate(node["_target_"])
            if folded(target.__name__) == folded(name) or (group, name) in HOLDS_DEFAULTS:
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
