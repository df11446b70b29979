"""Layer-wise learning rates and frozen layers: what they change, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.plans import build_data, run
from support.run_folders import read_summary
from support.runs import small_config
from torch import Tensor

from sliceformer_lab.config.checked import check_config
from sliceformer_lab.errors import ConfigError
from sliceformer_lab.runs.folder import scored_checkpoint
from sliceformer_lab.training.build import build_task
from sliceformer_lab.training.interfaces import TaskModule


def task_of(*words: str) -> TaskModule:
    config = small_config("encoder.depth=2", *words)
    return build_task(check_config(config), build_data(config).spec)


def rates(task: TaskModule) -> dict[str, float]:
    """The learning rate of each parameter."""
    names = {parameter: name for name, parameter in task.named_parameters()}
    groups = task.optim.build_optimizer(task).param_groups
    return {names[parameter]: group["lr"] for group in groups for parameter in group["params"]}


@pytest.mark.parametrize("optimizer", ["adamw", "lion"])
def test_each_block_learns_at_a_share_of_the_rate_of_the_block_above(optimizer: str) -> None:
    found = rates(task_of("optim.lr=1e-3", "optim.layer_decay=0.5", f"optim.optimizer={optimizer}"))
    expected = {
        "head.weight": 1e-3,
        "encoder.blocks.1.mlp.fc1.weight": 5e-4,
        "encoder.blocks.0.mlp.fc1.weight": 2.5e-4,
        "embedding.patches.proj.weight": 1.25e-4,
        "encoder.position.table": 1.25e-4,
        "encoder.blocks.0.attention.value.weight": 1e-3,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert set(rates(task_of("optim.lr=1e-3")).values()) == {1e-3}, "without layer_decay all have one rate"


@pytest.mark.parametrize("pretrain", ["none", "masked"])
def test_frozen_blocks_keep_their_weights_and_all_others_learn(pretrain: str, tmp_path: Path) -> None:
    words = ("encoder.depth=2", "optim.freeze=1", "optim.epochs=1", f"pretrain={pretrain}")
    torch.manual_seed(0)  # the seed of the run
    start = {name: value.clone() for name, value in task_of(*words).state_dict().items()}
    run(small_config(*words), tmp_path / "run")
    path = scored_checkpoint("last", tmp_path / "run")
    end: dict[str, Tensor] = torch.load(path, weights_only=True)["state_dict"]
    frozen = ("embedding.patches.proj.weight", "encoder.position.table", "encoder.blocks.0.mlp.fc1.weight")
    learning = ("encoder.blocks.0.attention.value.weight", "encoder.blocks.1.mlp.fc1.weight", "head.weight")
    if pretrain == "masked":
        saved = torch.load(scored_checkpoint("best_val", tmp_path / "run" / "pretrain"), weights_only=True)
        learned = {name: saved["state_dict"][f"task.{name}"] for name in start if not name.startswith("head.")}
        trained = sum(len(group["params"]) for group in saved["optimizer_states"][0]["param_groups"])
        assert trained == len(list(task_of(*words).parameters())) + 3, "with a head and a vector of its own"
        start |= learned
    for name in frozen:
        torch.testing.assert_close(end[name], start[name], rtol=0, atol=0)
    assert all(not torch.equal(end[name], start[name]) for name in learning)
    kept = sum(value.numel() for name, value in task_of(*words).named_parameters() if value.requires_grad)
    assert read_summary(tmp_path / "run")["parameters"] == kept < sum(v.numel() for v in task_of(*words).parameters())


def test_more_frozen_blocks_than_there_are_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"optim.freeze=3: the encoder has 2 blocks"):
        task_of("optim.freeze=3")
