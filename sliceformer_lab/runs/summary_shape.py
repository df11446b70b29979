"""The types of the facts in summary.json. Reports and resumed runs read files that others may have written."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12


def _scalar(value: Any) -> Any:
    if isinstance(value, dict | list):
        raise ValueError("should be one value")
    return value


Scalar = Annotated[Any, AfterValidator(_scalar)]  # a union of types would appear in the place of an error
Number = float | None


class _Best(TypedDict, total=False):
    epoch: int | None
    step: int | None
    metric: str | None
    value: Number


class _Start(TypedDict, total=False):
    time: str
    precision: str
    status: str
    seconds: float


class _Facts(TypedDict, total=False):
    """The facts that this package reads; any of them may be missing, and others may be there."""

    name: str
    task: str
    attention: str
    recipe: str | None
    experiment: str | None
    study: str | None
    scale: str | None
    status: str
    error: str | None
    started: str | None
    starts: list[_Start]
    seed: int | None
    split_seed: int | None
    tags: list[str]
    published: dict[str, Scalar] | None
    budget: str | None
    options: dict[str, dict[str, Any]]
    choices: list[dict[str, Any]]
    machine: dict[str, Scalar]
    versions: dict[str, str]
    git_commit: str | None
    command: list[str]
    wall_seconds: float
    protocol: dict[str, Scalar]
    best: _Best
    metrics: dict[str, Number]
    chance: Number
    warnings: list[str]
    parameters: int | None
    cost_per_sample: dict[str, Number]
    samples_per_second: Number
    peak_memory_gb: Number
    references: list[dict[str, Any]]


_FACTS = TypeAdapter(_Facts)


def malformed(content: object) -> str | None:
    """What is wrong with the content of a summary.json, in a few words; None if it can be read."""
    try:
        _FACTS.validate_python(content, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        return f"{place} is {first['input']!r:.60}"
    return None
