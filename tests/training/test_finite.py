"""NaN and infinite values never reach a checkpoint, never select one, and end a run as diverged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import LightningModule, Trainer
from support.plans import run
from support.run_folders import read_summary
from support.runs import assert_equal_runs, small_config
from torch import Tensor

from sliceformer_lab.callbacks.checkpoint import Checkpoints
from sliceformer_lab.callbacks.early_stop import EarlyStop
from sliceformer_lab.callbacks.guard import Guard
from sliceformer_lab.errors import DataError, DivergedError
from sliceformer_lab.runs.folder import read_checkpoint
from sliceformer_lab.tasks.image import ImageClassification
from sliceformer_lab.training.context import RunContext


def spoil_gradients(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Makes a gradient NaN in an optimizer step; its loss is finite."""

    def spoiling(self: Guard, trainer: Trainer, module: LightningModule, optimizer: Any) -> None:
        if trainer.global_step == step:
            module.head.weight.grad.fill_(torch.nan)

    monkeypatch.setattr(Guard, "on_before_optimizer_step", spoiling, raising=False)


@pytest.mark.parametrize("step", [1, 3], ids=["end of the first epoch", "last step of the run"])
def test_weights_that_became_nan_end_the_run_as_diverged_and_are_not_saved(
    step: int, uninterrupted: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        spoil_gradients(patch, step)
        with pytest.raises(DivergedError, match=f"the weights became NaN or infinite in epoch {(step + 1) // 2}"):
            run(small_config(), tmp_path)
    assert read_summary(tmp_path)["status"] == "diverged"
    for file in (tmp_path / "checkpoints").glob("*"):
        assert all(bool(w.isfinite().all()) for w in read_checkpoint(file)["state_dict"].values())
    run(small_config(), tmp_path)
    assert_equal_runs(uninterrupted(), tmp_path)


def test_an_infinite_loss_of_the_scored_checkpoint_is_diverged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def infinite(self: ImageClassification, output: Tensor, target: Tensor) -> Tensor:
        return output.sum() * torch.inf

    monkeypatch.setattr(ImageClassification, "evaluation_loss", infinite)
    with pytest.raises(DivergedError, match=r"val/loss is (inf|nan|-inf) at the scored checkpoint"):
        run(small_config("selection=last", "reference=null"), tmp_path)
    assert read_summary(tmp_path)["status"] == "diverged"


def test_a_score_that_is_nan_is_worse_than_any_other(tmp_path: Path) -> None:
    callback = Checkpoints(RunContext(folder=tmp_path, seed=0, monitor="val/mae", monitor_mode="min"))
    scores = (float("nan"), 3.0, float("nan"), float("-inf"), float("inf"), 2.0, 2.5)
    assert [callback._improved(score) for score in scores] == [True, True, False, False, False, True, False]


def test_a_selection_metric_that_is_undefined_in_the_first_epoch_ends_the_run(tmp_path: Path) -> None:
    class Fake:
        fast_dev_run, callback_metrics = False, {"val/auc": torch.tensor(torch.nan)}

    callback = Checkpoints(RunContext(folder=tmp_path, seed=0, monitor="val/auc", monitor_mode="max"))
    with pytest.raises(DataError, match="val/auc cannot be computed on the validation examples"):
        callback.on_train_epoch_end(Fake(), None)


def test_early_stopping_waits_from_the_last_finite_score(tmp_path: Path) -> None:
    class Module:
        num_steps = 1000

    class Fake:
        lightning_module, is_global_zero, should_stop = Module(), False, False
        global_step = 0

        def __init__(self) -> None:
            self.callback_metrics: dict[str, Tensor] = {}

    stop_context = RunContext(folder=tmp_path, seed=0, monitor="val/auc", monitor_mode="max")
    stop = EarlyStop(stop_context, patience_share=0.3)
    trainer = Fake()
    for step, score in ((100, float("nan")), (200, 0.5), (300, float("nan")), (450, 0.4)):
        trainer.global_step, trainer.callback_metrics = step, {"val/auc": torch.tensor(score)}
        stop.on_train_epoch_end(trainer, None)
        assert not trainer.should_stop
    trainer.global_step = 500
    again, resumed = EarlyStop(stop_context, patience_share=0.3), Fake()
    again.load_state_dict(stop.state_dict())
    resumed.global_step = 520  # within an epoch, where a run that was not stopped does not ask
    again.on_train_start(resumed, None)
    assert not resumed.should_stop
    stop.on_train_epoch_end(trainer, None)
    assert trainer.should_stop
    again.load_state_dict(stop.state_dict())
    again.on_train_start(resumed, None)
    assert resumed.should_stop
