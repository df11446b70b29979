"""The YAML of an attention agrees with the signature of its class."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.yaml_options import as_yaml, folded

from sliceformer_lab.config.compose import CONF_DIR, load_option, option_names
from sliceformer_lab.config.hybrid import attention_nodes
from sliceformer_lab.config.schema import locate, schema

NAMES = option_names("attention")


@pytest.mark.parametrize("name", NAMES)
def test_yaml_lists_every_option_and_nothing_else(name: str) -> None:
    node = load_option("attention", name)
    assert set(node) - {"_target_"} == set(schema(locate(node["_target_"])))


@pytest.mark.parametrize("name", NAMES)
def test_yaml_named_after_its_class_holds_the_defaults(name: str) -> None:
    node = load_option("attention", name)
    target = locate(node.pop("_target_"))
    if folded(target.__name__) == folded(name):
        assert node == {option: as_yaml(default) for option, (_, default) in schema(target).items()}


@pytest.mark.parametrize("name", NAMES)
def test_every_class_has_a_yaml_named_after_it(name: str) -> None:
    target = locate(load_option("attention", name)["_target_"])
    assert folded(target.__name__) in {folded(other) for other in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_options_pass_the_signature_check(name: str) -> None:
    attention_nodes(load_option("attention", name))


@pytest.mark.parametrize("file", sorted((CONF_DIR / "attention").glob("*.yaml")), ids=lambda file: file.stem)
def test_every_option_is_explained_on_its_line(file: Path) -> None:
    first, *lines = file.read_text().splitlines()
    assert first.startswith("# ")
    options = [line for line in lines if re.match(r"\w+:", line) and not line.startswith(("_target_:", "defaults:"))]
    assert [line for line in options if not re.search(r" # \S", line)] == []
