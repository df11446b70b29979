"""The border: every node is checked once, and the result is a typed plan."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest

from sliceformer_lab.config import schema
from sliceformer_lab.config.checked import check_config
from sliceformer_lab.config.compose import NOT_OF_A_RUN, compose_job, compose_root
from sliceformer_lab.config.plain_checks import number_faults, size_faults
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.training import build


def config(*overrides: str) -> dict[str, Any]:
    """A whole configuration of the default task, as the command line composes it."""
    composed = compose_root(["encoder.depth=6", "optim=fast", "paths.outputs=outputs", *overrides])
    names = {"task": "digits", "attention": "csp", "recipe": None, "study": None, "scale": "full"}
    return {key: value for key, value in composed.items() if key not in NOT_OF_A_RUN} | {"names": names, "data": DATA}


DATA = compose_job(["task=digits"])["data"]


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the options of each class were checked."""
    counted: Counter[str] = Counter()
    models = schema._model

    def count(target: Any) -> Any:
        counted[target.__name__] += 1
        return models(target)

    monkeypatch.setattr(schema, "_model", count)
    return counted


@pytest.mark.parametrize(
    ("attention", "classes"),
    [(["attention=csp"], ["CSP"]), (["attention=hybrid", "attention.pattern=[csp,mha,csp]"], ["Hybrid", "CSP", "MHA"])],
)
def test_from_the_command_line_to_the_task_every_node_is_checked_once(
    checks: Counter[str], attention: list[str], classes: list[str]
) -> None:
    plan = check_config(config(*attention))
    task = build.build_task(plan, plan.data.build().spec)
    assert len(task.encoder.attentions) == 6
    names = (*classes, "Block", "EncoderOptions", "OptimOptions", "Digits")
    assert {name: checks[name] for name in names} == dict.fromkeys(names, 1)


def test_a_changed_plan_checks_the_nodes_that_change_and_no_others(checks: Counter[str]) -> None:
    plan = check_config(config())
    before = Counter(checks)
    changed = plan.with_options({"data.batch_size": 8, "optim.lr": 0.5})
    assert {name: checks[name] - before[name] for name in ("Digits", "Trainer")} == {"Digits": 1, "Trainer": 0}
    assert changed.data.options["batch_size"] == 8 and changed.model.optim.options["lr"] == 0.5
    assert changed.plain["data"]["batch_size"] == 8 and plan.plain["data"]["batch_size"] != 8
    with pytest.raises(ConfigError, match=r"data\.batch_size: given 0"):
        plan.with_options({"data.batch_size": 0})


def test_every_number_without_meaning_and_every_size_without_memory_is_named() -> None:
    numbers = {"optim": {"lr": math.nan, "betas": [0.9, -math.inf]}, "tags": [2**63], "seed": 2**62}
    places = [fault.partition(":")[0] for fault in number_faults(numbers)]
    assert places == ["optim.lr", "optim.betas.1", "tags.0"]
    huge = 10**12
    for name in ("batch_size", "image_size", "max_len", "num_points", "vocab_size"):
        (fault,) = size_faults({"data": {name: huge}, "encoder": {"dim": 8}})
        assert fault.startswith(f"data.{name}={huge:,}: needs at least "), name
    for name in ("depth", "mlp_dim"):
        (fault,) = size_faults({"encoder": {"dim": 8, name: huge}})
        assert f"encoder.{name}={huge:,}" in fault, name
