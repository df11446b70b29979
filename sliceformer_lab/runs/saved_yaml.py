"""Reads YAML files that a run or a sweep has left: plain values only, whoever wrote them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import yaml

from sliceformer_lab.config.plain_checks import values_by_place
from sliceformer_lab.errors import RunFolderError

INTERPOLATION = "${"
MAX_DEPTH = 50  # of lists and mappings in each other; a configuration has 6 levels
FLOAT, TIMESTAMP = "tag:yaml.org,2002:float", "tag:yaml.org,2002:timestamp"
EXPONENT = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$")


class PlainLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads plain values as OmegaConf writes them: 1e-4 is a number, although YAML 1.1 wants 1.0e-4; a date is text."""

    yaml_implicit_resolvers: ClassVar = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != TIMESTAMP]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping, whose keys are different. Raises ConstructorError."""
        given = [key.value for key, _ in node.value]
        if twice := [key for key in given if given.count(key) > 1]:
            raise yaml.constructor.ConstructorError(None, None, f"the key {twice[0]} is given twice", node.start_mark)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


PlainLoader.add_implicit_resolver(FLOAT, EXPONENT, list("-+.0123456789"))


def read_yaml(file: Path) -> dict[str, Any]:
    """The mapping in a YAML file. Raises RunFolderError for a file that is damaged or holds something else.

    Aliases are refused: ten lines of them can describe a billion values.
    """
    try:
        text = file.read_text(encoding="utf-8")
        fault = _find_fault(text)
        content = None if fault else yaml.load(text, Loader=PlainLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise RunFolderError(f"{file} cannot be read ({type(error).__name__}: {reason})") from error
    if fault:
        raise RunFolderError(f"{file} cannot be read: it {fault}, which no saved file needs")
    if not isinstance(content, dict):
        raise RunFolderError(f"{file} does not hold a configuration")
    return {str(key): value for key, value in content.items()}


def _find_fault(text: str) -> str | None:
    """What a YAML text has that could take endless memory or too deep a recursion; None if it has nothing of it."""
    depth = 0
    for event in yaml.parse(text, PlainLoader):
        if isinstance(event, yaml.AliasEvent):
            return "has YAML aliases"
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            return f"has more than {MAX_DEPTH} levels"
    return None


def refuse_interpolations(content: Any, file: Path) -> None:
    """Raises RunFolderError if a value would be looked up elsewhere, such as ${oc.env:HOME}: saved values are final."""
    for place, value in values_by_place(content):
        if INTERPOLATION in f"{place} {value}":
            raise RunFolderError(
                f"{file}: {place} holds {value!r}; a saved configuration is data, nothing is resolved in it"
            )
