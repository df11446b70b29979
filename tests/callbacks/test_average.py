"""A moving average of the weights is what a run validates, saves and scores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from support.plans import run
from support.run_folders import read_summary
from support.runs import assert_equal_runs, small_config, stopped_at

from sliceformer_lab.callbacks.average import MovingAverage
from sliceformer_lab.runs.folder import read_checkpoint
from sliceformer_lab.training.saved.saved_run import load_run

EMA = ("attention=csp", "callbacks=ema", "callbacks.ema.decay=0.9", "optim.epochs=3", "data.batch_size=32")


@pytest.fixture(scope="module")
def averaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of three epochs that nothing stopped."""
    folder = tmp_path_factory.mktemp("runs") / "averaged"
    run(small_config(*EMA, "callbacks.early_stop.patience_share=0.99"), folder)
    return folder


@pytest.mark.parametrize(
    ("decay", "every", "warning"),
    [
        (0.999, 1, ("92% of the average", "ema.decay=0.94")),
        (0.9, 100, ("100% of the average", "ema.every=4")),
        (0.95, 1, ()),
    ],
)
def test_an_average_of_early_weights_is_warned_of(
    decay: float, every: int, warning: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    class Fake:
        is_global_zero, num_steps = True, 80

    MovingAverage(decay=decay, every=every).on_train_start(Fake(), Fake())  # type: ignore[arg-type]
    assert bool(caplog.text) == bool(warning) and all(part in caplog.text for part in warning)


def test_the_scored_weights_are_the_average_and_the_shifts_those_of_training(averaged: Path) -> None:
    checkpoint = read_checkpoint(averaged / "checkpoints" / "best.ckpt")
    average, last = checkpoint["state_dict"], checkpoint["current_model_state"]
    assert not torch.equal(average["head.weight"], last["head.weight"])
    found = load_run(averaged)
    torch.testing.assert_close(found.model.state_dict()["head.weight"], average["head.weight"])
    summary = read_summary(averaged)
    assert summary["options"]["callbacks"] == {
        "early_stop": {"patience_share": 0.99},
        "ema": {"decay": 0.9, "every": 1},
    }
    run(small_config(*EMA, "callbacks.early_stop.patience_share=0.99", "mode=eval"), averaged)
    again = json.loads((averaged / "eval.json").read_text())["metrics"]
    assert again["val/accuracy"] == pytest.approx(summary["best"]["value"], abs=1e-6)
    batch = found.data.splits["test"].batch(list(range(20)))
    with torch.inference_mode():
        outputs = found.model(batch)
    torch.testing.assert_close(
        outputs.half(), torch.from_numpy(found.predictions["test_logits"][:20]), atol=2e-3, rtol=2e-3
    )


def test_a_run_stopped_while_scoring_is_scored_with_the_average(averaged: Path, tmp_path: Path) -> None:
    config = small_config(*EMA, "callbacks.early_stop.patience_share=0.99")
    with stopped_at(None, hook="on_test_start"):
        run(config, tmp_path)
    run(config, tmp_path)
    assert_equal_runs(averaged, tmp_path)
