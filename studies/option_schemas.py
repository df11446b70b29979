"""Write a JSON schema for each group of options, with which an editor completes and checks YAML files.

python studies/option_schemas.py [FOLDER]    writes FOLDER/GROUP.json, by default build/schemas (`make schemas`)

A schema is made from the signatures of the classes that a group names, and from the comments beside the options.
CONTRIBUTING.md says how an editor finds them.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError

from sliceformer_lab.config.compose import CONF_DIR, option_file, option_names, written_option
from sliceformer_lab.config.schema import locate, schema

FLAT = ("attention", "block", "encoder", "optim", "launcher", "analysis", "pretrain", "trainer")
OF_A_TASK = ("task", "data")  # the nodes that the files of a task fill
LATER = {"type": "string", "pattern": r"\$\{|^\?\?\?$"}  # an interpolation, or a value that the user has to give
Schema = dict[str, Any]


def group_schema(group: str) -> Schema:
    """The schema of the files in conf/`group`, or in a user's folder of this name."""
    if group in FLAT:
        return {"$schema": "http://json-schema.org/draft-07/schema#", **node_schema(targets(group))}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {node: node_schema(targets(group, node)) for node in OF_A_TASK},
    }


def node_schema(classes: dict[str, dict[str, str]]) -> Schema:
    """A node of one of these classes: `_target_` decides which options it has; without it, those of any of them."""
    options = {target: option_schemas(target, comments) for target, comments in classes.items()}
    any_class: dict[str, list[Schema]] = {}
    for of_class in options.values():
        for name, of_option in of_class.items():
            any_class.setdefault(name, []).append(of_option)
    common: dict[str, Schema] = {
        "_target_": {"type": "string", "examples": sorted(classes)},
        "defaults": {"type": "array"},
    }
    alternatives = {name: {"anyOf": found} for name, found in any_class.items()}
    rules = [
        {"if": _names(target), "then": _closed({**common, **of_class})} for target, of_class in sorted(options.items())
    ]
    without = {"if": {"not": {"required": ["_target_"]}}, "then": _closed({**common, **alternatives})}
    return {"type": "object", "properties": common, "allOf": [*rules, without]}


def targets(group: str, node: str | None = None) -> dict[str, dict[str, str]]:
    """The classes that the files of a group name, in one of their nodes: dotted name -> comment of each option."""
    found: dict[str, dict[str, str]] = {}
    for name in (*option_names(group), *shared_files(group)):
        content = written_option(group, name)
        if target := (content if node is None else content.get(node) or {}).get("_target_"):
            text = option_file(group, name).read_text(encoding="utf-8")
            comments = dict(re.findall(r"^ *(\w+):.*? # (.+)$", text, re.MULTILINE))
            found[target] = {**comments, **found.get(target, {})}
    return found


def shared_files(group: str) -> list[str]:
    """The files that others of the group start from."""
    return [file.stem for file in sorted((CONF_DIR / group).glob("_*.yaml"))]


def option_schemas(target: str, comments: dict[str, str]) -> dict[str, Schema]:
    """The schema of each option of a class, by its type, with its default and its comment."""
    options = {}
    for name, (hint, default) in schema(locate(target)).items():
        found: Schema = {"anyOf": [_type_schema(hint), LATER]}
        if isinstance(default, bool | int | float | str):
            found["default"] = default
        if name in comments:
            found["description"] = comments[name]
        options[name] = found
    return options


def _type_schema(hint: Any) -> Schema:
    """The schema of a type; that of a library's own class allows everything, as no file can write its values."""
    try:
        return TypeAdapter(hint).json_schema()
    except (PydanticSchemaGenerationError, ValueError):
        return {}


def _names(target: str) -> Schema:
    return {"properties": {"_target_": {"const": target}}, "required": ["_target_"]}


def _closed(properties: dict[str, Schema]) -> Schema:
    return {"properties": properties, "additionalProperties": False}


def main(folder: str = "build/schemas") -> None:
    """Write all schemas."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for group in (*FLAT, "task"):
        Path(folder, f"{group}.json").write_text(json.dumps(group_schema(group), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
