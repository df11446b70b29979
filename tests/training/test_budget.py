"""A budget of parameters or multiply-adds changes one width, logs it, and is refused if no width meets it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from support.plans import build_data, build_task
from support.run_folders import read_summary

from sliceformer_lab.__main__ import main
from sliceformer_lab.attention.base import LayerSpec
from sliceformer_lab.attention.csp import CSP
from sliceformer_lab.config.checked import check_config
from sliceformer_lab.config.compose import load_option
from sliceformer_lab.config.explain import job_config
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.training import budget, build
from sliceformer_lab.training.results.scoring import cost_per_sample, num_parameters

DRY_RUN = ("encoder=tiny", "encoder.depth=1", "debug=fast", "callbacks=minimal")


@cache
def root_of(task: str) -> dict[str, Any]:
    """The composed configuration of a task; composing it in every test would be slow."""
    config = job_config([f"task={task}", "encoder=tiny", "encoder.depth=1"])
    config["data"] |= {"root": "unused"} if "root" in config["data"] else {}
    return config


def configured(attention: str, task: str = "digits", block: str | None = None, **changes: Any) -> dict[str, Any]:
    """A configuration with changed options; two underscores stand for a dot."""
    config = deepcopy(root_of(task)) | {"attention": load_option("attention", attention)}
    if block is not None:
        config["block"] = load_option("block", block)
    for key, value in changes.items():
        node, _, name = key.rpartition("__")
        (config[node] if node else config)[name] = value
    return config


def built(config: dict[str, Any]) -> Any:
    return build_task(config, build_data(config).spec)


def within_budget(config: dict[str, Any]) -> dict[str, Any]:
    plan = check_config(config)
    return dict(budget.within_budget(plan, build.build_data(plan).spec).plain)


def multiply_adds(config: dict[str, Any]) -> int:
    return cost_per_sample(built(config))["multiply_adds"]


def test_csp_under_the_parameters_of_mha_is_the_wide_csp_of_the_paper() -> None:
    config = job_config(["recipe=csp/table3_cifar10", "attention=csp", "budget=params:mha"])
    config["data"]["root"] = "unused"
    solved = within_budget(config)
    assert solved == {**config, "attention": load_option("attention", "csp_wide")}
    with torch.device("meta"):
        parameters = num_parameters(built(solved))
    assert parameters + 2 * 512 == 9_523_722  # operators spec, section 2; 2 dim for the CLS token the paper allocates


SOLVED: list[tuple[dict[str, Any], str]] = [
    ({"attention": "csp"}, "attention.inner_mult"),
    ({"attention": "identity"}, "encoder.mlp_dim"),
    ({"attention": "csp", "budget_by": "encoder.mlp_dim"}, "encoder.mlp_dim"),
    ({"attention": "csp", "budget_by": "encoder.dim"}, "encoder.dim"),
    ({"attention": "csp", "budget": "params:10k"}, "encoder.dim"),  # no inner width makes the model small enough
    ({"attention": "sliceformer", "block": "set"}, "encoder.dim"),  # it has no other width
]


@pytest.mark.parametrize(("changes", "solved"), SOLVED)
def test_the_first_width_that_meets_the_budget_changes(
    changes: dict[str, Any], solved: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = configured(**({"budget": "params:50K"} | changes))
    with caplog.at_level(logging.INFO):
        found = within_budget(config)
    node, _, name = solved.partition(".")
    assert {key for key in config if config[key] != found[key]} == {node}
    assert {key for key in config[node] if config[node][key] != found[node][key]} == {name}
    parameters = num_parameters(built(found))
    asked = config["budget"]
    assert parameters == pytest.approx(1000 * int(asked[len("params:") : -1]), rel=0.05)
    expected = f"budget={asked}: {solved} {config[node][name]} -> {found[node][name]}: {parameters:,} parameters of "
    assert [record.message.startswith(expected) for record in caplog.records] == [True]


@pytest.mark.parametrize("target", [20_000, 31_234])
def test_no_other_width_comes_nearer(target: int) -> None:
    config = configured("mean", budget=f"params:{target}", budget_by="encoder.mlp_dim")
    found = within_budget(config)["encoder"]["mlp_dim"]

    def distance(width: int) -> int:
        return abs(num_parameters(built(configured("mean", encoder__mlp_dim=width))) - target)

    assert distance(found) <= min(distance(found - 1), distance(found + 1))


@pytest.mark.parametrize("off", [1.0, 1.0009])
def test_a_model_that_meets_its_budget_keeps_its_width(off: float, caplog: pytest.LogCaptureFixture) -> None:
    parameters = num_parameters(built(configured("mha")))
    config = configured("mha", budget=f"params:{round(off * parameters)}")
    with caplog.at_level(logging.INFO):
        assert within_budget(config) == config
    assert f": {parameters:,} parameters of csp as configured, " in caplog.text


@pytest.mark.parametrize(
    ("budget", "changes"),
    [
        ("flops:mha", {"task": "zinc", "attention": "csp"}),
        (
            "flops:{}",  # its forward pass counts the edges, which the meta device cannot
            {"task": "peptides_func", "attention": "csp", "task__tokens": "nodes_edges", "encoder__position": "none"},
        ),
        ("flops:{}", {"task": "modelnet40", "attention": "mean", "data__num_points": 16}),
        ("flops:mha", {"task": "lra_text", "attention": "hybrid", "data__max_len": 64}),
    ],
)
def test_budgets_work_for_every_kind_of_task(budget: str, changes: dict[str, Any]) -> None:
    wanted = multiply_adds(configured(**(changes | {"attention": "mha"})))
    config = configured(**changes, budget=budget.format(wanted))
    solved = within_budget(config)
    assert solved != config
    assert multiply_adds(solved) == pytest.approx(wanted, 0.05)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"budget": "watts:3"}, r"^budget=watts:3: give params: or flops: and a number or an attention, as in params:6"),
    ({"budget": "params:-3"}, r"^budget=params:-3: should be between 1 and 1e\+15$"),
    ({"budget": "flops:mah"}, r"^budget=flops:mah: mah is neither a number such as 6.38M .* did you mean mha\?$"),
    (
        {"budget": "params:1K"},
        r"^budget=params:1K: no width comes within 5 % of 1,000 parameters; the nearest this model can have: "
        r"[\d,]+ \(encoder.dim=4\) and [\d,]+ \(encoder.mlp_dim=1\)$",
    ),
    ({"attention": "mean", "budget_by": "attention.inner_mult"}, r"^budget_by=.*has no such width; choose encoder"),
    ({"attention": "mha", "block": "set", "budget_by": "encoder.mlp_dim"}, "changes nothing in this model"),
    ({"attention": "sliceformer", "block": "set", "budget_by": "attention.inner_mult"}, "leave head_dim and inner_mu"),
    ({"budget": "params:mha", "encoder__num_heads": 5}, "^encoder: num_heads=5 does not divide dim=64"),
    ({"task": "zinc", "budget": "params:fnet"}, "^budget=params:fnet: zinc passes a pairwise bias, which FNet cannot"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_a_budget_that_cannot_be_met_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        within_budget(configured(**({"attention": "csp", "budget": "params:80K"} | changes)))


@pytest.mark.parametrize("position", ["sincos", "sincos2d", "rope"])
@pytest.mark.parametrize("head_dim", [None, 8])
def test_a_solved_width_fits_its_positions(position: str, head_dim: int | None) -> None:
    sizes = {"encoder__position": position, "encoder__num_heads": 2, "encoder__head_dim": head_dim}
    built(within_budget(configured("mha", budget="params:101K", budget_by="encoder.dim", **sizes)))


def test_inner_width_is_rounded_to_whole_channels_of_every_head() -> None:
    spec = LayerSpec(dim=12, num_heads=4, max_len=8)
    widths = {mult: CSP(spec, inner_mult=mult).width for mult in (0.01, 1 / 3, 1, 1.3, 1.4, 2)}
    assert widths == {0.01: 4, 1 / 3: 4, 1: 12, 1.3: 16, 1.4: 16, 2: 24}


@pytest.fixture
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(("attention=csp", "budget=params:mha", "hydra.run.dir=first", *DRY_RUN)) == 0
    return tmp_path / "first"


def test_run_records_the_budget_and_the_solved_width_and_resuming_keeps_it(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    summary = read_summary(run_folder)
    assert summary["budget"] == "params:mha"
    assert summary["options"]["attention"]["inner_mult"] == 2
    for file in ("config.yaml", ".processes.yaml"):
        saved = yaml.safe_load((run_folder / file).read_text())
        assert (saved["budget"], saved["attention"]["inner_mult"]) == ("params:mha", 2)

    def solve_again(config: object) -> None:
        raise AssertionError(config)

    monkeypatch.setattr(budget, "within_budget", solve_again)
    assert main(("resume=first",)) == 0
    assert "budget=params:samsa: a resumed run keeps its con" in refused("resume=first", "budget=params:samsa")
