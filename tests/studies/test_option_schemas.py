"""The JSON schemas for editors: every option file of ours fits them, and a wrong one does not."""

from __future__ import annotations

from functools import cache
from typing import Any

import jsonschema
import pytest
from option_schemas import FLAT, group_schema

from sliceformer_lab.config.compose import option_names, written_option


@cache
def validator(group: str) -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator(group_schema(group))


def faults(group: str, node: dict[str, Any]) -> list[str]:
    return [error.message for error in validator(group).iter_errors(node)]


@pytest.mark.parametrize("group", [*FLAT, "task"])
def test_every_file_of_a_group_fits_its_schema(group: str) -> None:
    wrong = {name: found for name in option_names(group) if (found := faults(group, written_option(group, name)))}
    assert option_names(group) and wrong == {}


@pytest.mark.parametrize(
    ("change", "message"),
    {
        "group_sise=2": "'group_sise' was unexpected",
        "group_size=two": "'two' is not valid under any of the given schemas",
        "shift=sideways": "'sideways' is not valid under any of the given schemas",
        "qk_norm=true": "'qk_norm' was unexpected",  # an option of mha
        "group_size=${seed}": None,
    }.items(),
)
def test_a_schema_knows_names_and_types_of_the_options_of_each_class(change: str, message: str | None) -> None:
    key, _, value = change.partition("=")
    found = faults("attention", written_option("attention", "csp") | {key: value})
    assert any(message in fault for fault in found) if message else found == []
