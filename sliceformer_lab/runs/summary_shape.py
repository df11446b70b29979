"""The types of the facts in summary.json. Reports and resumed runs read files that others may have written."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ValidationError


def _check_scalar(value: Any) -> Any:
    if isinstance(value, dict | list):
        raise ValueError("should be one value")
    return value


Scalar = Annotated[Any, AfterValidator(_check_scalar)]  # a union of types would appear in the place of an error
Number = float | None


class _Best(BaseModel, strict=True):
    epoch: int | None = None
    step: int | None = None
    metric: str | None = None
    value: Number = None


class _Start(BaseModel, strict=True):
    time: str = ""
    precision: str = ""
    status: str = ""
    seconds: float = 0.0
    changed_data: list[str] = []


class _Reference(BaseModel, strict=True):
    name: str
    metrics: dict[str, Number] | None = None
    seconds: Number = None
    skipped: str | None = None


class _Choice(BaseModel, strict=True):
    option: str


class _Facts(BaseModel, strict=True):
    """The facts that this package reads; any of them may be missing, and others may be there."""

    name: str = ""
    task: str = ""
    attention: str = ""
    recipe: str | None = None
    study: str | None = None
    scale: str | None = None
    status: str = ""
    error: str | None = None
    started: str | None = None
    starts: list[_Start] = []
    seed: int | None = None
    split_seed: int | None = None
    tags: list[str] = []
    published: dict[str, Scalar] | None = None
    budget: str | None = None
    options: dict[str, dict[str, Any]] = {}
    choices: list[_Choice] = []
    digests: dict[str, str] = {}
    sources: dict[str, str] = {}
    machine: dict[str, Scalar] = {}
    versions: dict[str, str] = {}
    git_commit: str | None = None
    command: list[str] = []
    wall_seconds: float = 0.0
    protocol: dict[str, Scalar] = {}
    best: _Best = _Best()
    metrics: dict[str, Number] = {}
    chance: Number = None
    warnings: list[str] = []
    parameters: int | None = None
    cost_per_sample: dict[str, Number] = {}
    samples_per_second: Number = None
    peak_memory_gb: Number = None
    references: list[_Reference] = []
    data_remarks: list[str] = []


def describe_fault(content: object) -> str | None:
    """What is wrong with the content of a summary.json, in a few words; None if it can be read."""
    try:
        _Facts.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        return f"{place} is {first['input']!r:.60}"
    return None
