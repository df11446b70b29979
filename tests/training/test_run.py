"""The files of a finished run: summary, metrics, predictions, checkpoints."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.plans import build_data, plan_of, prepared, run
from support.run_folders import read_summary, summary_of
from support.runs import small_config
from torch import Tensor, nn

from sliceformer_lab.__main__ import main
from sliceformer_lab.errors import ConfigError
from sliceformer_lab.runs.folder import read_checkpoint
from sliceformer_lab.tasks.image import ImageClassification
from sliceformer_lab.tasks.target_task import TargetTask
from sliceformer_lab.training.build import build_task
from sliceformer_lab.training.results import scoring
from sliceformer_lab.training.results.scoring import protocol
from sliceformer_lab.training.results.summary import print_summary
from sliceformer_lab.training.saved.saved_run import load_run
from sliceformer_lab.training.timing import TimedTraining


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three epochs with all default callbacks, on few examples."""
    folder = tmp_path_factory.mktemp("runs") / "finished"
    options = (
        "callbacks=default",
        "pictures=true",
        "callbacks.throughput.warmup_batches=1",
        "data.limit_eval=null",
        "trainer.log_every_n_steps=1",
    )
    run(small_config(*options, "optim.epochs=3", "data.split_seed=4", "tags=[a, b]"), folder)
    return folder


def accuracy(predictions: Mapping[str, Any], split: str) -> float:
    return float(np.mean(predictions[f"{split}_logits"].argmax(1) == predictions[f"{split}_targets"]))


def test_folder_holds_all_files(finished: Path) -> None:
    pictures = {"curves.png", "spectrum.png", "confusion.png", "mistakes.png"}
    files = {"summary.json", "config.yaml", "predictions.npz", "spectrum.npz", *pictures}
    assert files <= {file.name for file in finished.iterdir()}
    assert {file.name for file in (finished / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt", "previous.ckpt"}
    for name in pictures:
        assert (finished / name).read_bytes().startswith(b"\x89PNG")


def test_the_protocol_has_the_limits_of_the_data_and_of_the_batches() -> None:
    config = small_config("data.limit_train=128", "data.limit_eval=64", "trainer.limit_train_batches=2")
    plan = plan_of(config)
    data = prepared(build_data(plan))
    found = protocol(plan, data, build_task(plan, data.spec))
    limits = {name: value for name, value in found.items() if name.startswith("limit_")}
    of_data = {"limit_train": 128, "limit_val": 64, "limit_test": 64}
    assert limits == of_data | {"limit_train_batches": 2, "limit_val_batches": None}


def test_summary_records_configuration_and_results(finished: Path) -> None:
    summary = read_summary(finished)
    assert (summary["status"], summary["task"], summary["attention"]) == ("ok", "digits", "mha")
    assert (summary["seed"], summary["split_seed"], summary["tags"]) == (0, 4, ["a", "b"])
    assert summary["options"]["attention"] == {"qk_norm": False, "gate": False, "times_tokens": False}
    protocol = summary["protocol"]
    assert (protocol["data"], protocol["official"], len(protocol["sha256"])) == ("digits", True, 64)
    assert (protocol["num_train"], protocol["num_val"], protocol["num_test"]) == (128, 299, 299)
    assert (protocol["sequence_length"], protocol["selection"], protocol["limit_train"]) == (16, "best_val", 128)
    assert summary["parameters"] == sum(p.numel() for p in load_run(finished).model.parameters())
    assert summary["cost_per_sample"]["multiply_adds"] > summary["parameters"]
    assert {"test/accuracy", "test/accuracy_top5", "test/loss", "val/accuracy"} <= summary["metrics"].keys()
    speed = summary["prediction"]
    assert speed["batch"] == 32 and speed["latency_ms"] > 0 and speed["inputs_per_second"] > 0
    for name in ("samples_per_second", "peak_memory_gb", "wall_seconds"):
        assert summary[name] > 0
    assert summary["versions"]["torch"] == torch.__version__.partition("+")[0] and "published" in summary
    assert "references" not in summary, "reference=null"


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed"])
def test_times_are_of_the_precision_of_the_run(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small_config(f"trainer.precision={precision}", "data.limit_train=40")
    training, computed = TimedTraining(config, "cpu"), []

    def time_calls(calls: Mapping[int, Callable[[], Tensor]], rounds: int, *_: object) -> dict[int, list[float]]:
        computed.extend(call().dtype for call in calls.values())
        return dict.fromkeys(calls, [0.004, 0.001, 0.002][:rounds])

    monkeypatch.setattr(scoring, "in_turns", time_calls)
    speed = scoring.prediction_speed(training.plan, training.task, prepared(build_data(training.plan)))
    assert speed == {"latency_ms": 2.0, "inputs_per_second": 32 / 0.004, "batch": 32}
    training.task.head.register_forward_hook(lambda *call: computed.append(call[2].dtype))
    training.step()
    wanted = {"32-true": torch.float32, "bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}[precision]
    assert computed == 3 * [wanted]


def test_scored_epoch_is_the_best_of_the_history(finished: Path) -> None:
    found = load_run(finished)
    curve = found.metrics[["epoch", "step", "val/accuracy"]].dropna()
    best = curve.loc[curve["val/accuracy"].idxmax()]
    when = {"epoch": int(best["epoch"]), "step": int(best["step"]) + 1}  # steps made
    assert found.summary["best"] == when | {"metric": "val/accuracy", "value": pytest.approx(best["val/accuracy"])}
    assert len(curve) == 3
    assert read_checkpoint(finished / "checkpoints" / "best.ckpt")["epoch"] == best["epoch"]


def test_scores_recomputed_from_the_predictions_are_the_recorded_ones(finished: Path) -> None:
    """299 examples make batches of 256 and 43, and a loss is the mean over examples."""
    found = load_run(finished)
    for split in ("val", "test"):
        assert found.predictions[f"{split}_logits"].dtype == np.float16
        np.testing.assert_array_equal(found.predictions[f"{split}_ids"], np.arange(299))
        assert accuracy(found.predictions, split) == pytest.approx(
            found.summary["metrics"][f"{split}/accuracy"], abs=1e-7
        )
        logits, targets = (torch.from_numpy(found.predictions[f"{split}_{name}"]) for name in ("logits", "targets"))
        expected = nn.functional.cross_entropy(logits.float(), targets).item()
        assert found.summary["metrics"][f"{split}/loss"] == pytest.approx(expected, abs=2e-4)


def test_training_loss_is_the_mean_over_examples_not_batches(tmp_path: Path) -> None:
    """66 examples make batches of 64 and 2; the weights stay as they are."""
    words = ("optim.lr=1e-12", "data.limit_train=66", "data.batch_size=64", "optim.epochs=1", "optim.warmup_steps=0")
    run(small_config(*words, "encoder.dropout=0", "task.label_smoothing=0"), tmp_path)
    found = load_run(tmp_path)
    (loss,) = found.metrics["train/loss"].dropna()
    batch = found.data.splits["train"].batch(list(range(66)))
    with torch.no_grad():
        each = nn.functional.cross_entropy(found.model(batch), batch.target, reduction="none")
    batches = float(each[:64].mean() + each[64:].mean()) / 2
    assert loss == pytest.approx(float(each.mean()), abs=1e-5) != pytest.approx(batches, abs=1e-3)


def test_an_image_of_mixup_counts_once_in_the_training_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """67 examples make a batch of 64, which is mixed, and an odd one of 3, which is not."""
    batches: list[tuple[float, int]] = []

    def record_loss(self: ImageClassification, output: Tensor, target: Tensor) -> Tensor:
        loss = TargetTask.loss(self, output, target)
        if self.training:
            batches.append((float(loss), len(target)))
        return loss

    monkeypatch.setattr(ImageClassification, "loss", record_loss)
    words = ("task.mixup=0.8", "data.limit_train=67", "data.batch_size=64", "optim.epochs=1", "optim.warmup_steps=0")
    run(small_config(*words), tmp_path)
    (loss,) = load_run(tmp_path).metrics["train/loss"].dropna()
    assert [count for _, count in batches] == [64, 3]
    assert loss == pytest.approx(sum(mean * count for mean, count in batches) / 67, abs=1e-5)


def test_a_score_that_is_not_defined_is_called_so_by_a_second_scoring_and_by_the_card_of_an_export(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run(small_config("data.limit_eval=1"), tmp_path / "run")
    assert read_summary(tmp_path / "run")["metrics"]["test/auc"] is None  # of one example
    assert main(["mode=eval", f"resume={tmp_path / 'run'}"]) == 0
    assert re.search(r"test/auc\W+undefined\W+undefined", capfd.readouterr().out)
    assert main(["export", f"resume={tmp_path / 'run'}", "format=safetensors"]) == 0
    card = (tmp_path / "run" / "export" / "safetensors" / "README.md").read_text()
    assert "| test/auc | undefined |" in card


def test_metrics_are_those_of_predictions_rounded_to_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits closer than half precision are ties; metric and file must break them in the same way."""
    forward = ImageClassification.forward
    monkeypatch.setattr(ImageClassification, "forward", lambda self, batch: 1000 + 0.2 * forward(self, batch))
    run(small_config(), tmp_path)
    found = load_run(tmp_path)
    assert accuracy(found.predictions, "test") == pytest.approx(found.summary["metrics"]["test/accuracy"], abs=1e-7)


def test_history_has_rate_and_loss_of_each_step(finished: Path) -> None:
    metrics = load_run(finished).metrics
    rates = metrics["train/lr"].dropna()
    np.testing.assert_allclose(rates, [0.002 * (step + 1) / 50 for step in range(6)], rtol=1e-6)
    assert len(metrics["train/batch_loss"].dropna()) == 6 and len(metrics["train/loss"].dropna()) == 3


def test_load_run_gives_model_data_and_configuration(finished: Path) -> None:
    found = load_run(str(finished))
    assert not found.model.training and found.config["data"]["split_seed"] == 4
    batch = next(iter(found.data.test_dataloader()[0]))
    with torch.no_grad():
        logits = found.model(batch)
    torch.testing.assert_close(logits.half().numpy(), found.predictions["test_logits"][: len(batch)], rtol=0, atol=0)


def test_an_epoch_prints_a_line_with_the_remaining_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)  # with a bar below the lines
    run(small_config(), tmp_path)
    lines = re.findall(r"epoch [12]/2  [^\x1b\r\n]* left", capsys.readouterr().out)
    number = r"\d+\.\d{4}"
    names = ("train/loss", "val/accuracy", "val/accuracy_top5", "val/auc", "val/f1", "val/loss")
    metrics = "  ".join(f"{name} {number}" for name in names)
    assert len(lines) == 2
    assert re.fullmatch(rf"epoch 1/2  {metrics}  \d+\.\d s/epoch, 0:\d\d min left", lines[0])
    assert lines[1].endswith("0:00 min left")


def test_selection_last_scores_the_last_epoch_and_the_test_set_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    step = ImageClassification.test_step

    def counting(self: ImageClassification, batch: Any, batch_idx: int) -> None:
        seen.extend(batch.ids.tolist())
        step(self, batch, batch_idx)

    monkeypatch.setattr(ImageClassification, "test_step", counting)
    run(small_config("selection=last"), tmp_path)
    assert len(seen) == len(set(seen)) == 64
    assert not [name for name in load_run(tmp_path).metrics if name.startswith("test")]
    assert read_summary(tmp_path)["best"]["epoch"] == 1
    assert not (tmp_path / "checkpoints" / "best.ckpt").exists()


def test_best_test_epoch_is_named_so_and_has_a_curve(tmp_path: Path) -> None:
    run(small_config("selection=best_test", "data.val_fraction=0", "optim.epochs=3"), tmp_path)
    found = load_run(tmp_path)
    curve = found.metrics["test_curve/accuracy"].dropna()
    assert len(curve) == 3
    assert found.summary["metrics"]["test/accuracy_best_test_epoch"] == pytest.approx(curve.max(), abs=1e-6)
    assert not {"test/accuracy", "val/accuracy"} & found.summary["metrics"].keys()
    assert {name.partition("_")[0] for name in found.predictions} == {"test", "class"}


def test_best_epoch_needs_validation_examples(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no validation examples; choose selection=last"):
        run(small_config("data.val_fraction=0"), tmp_path)


def test_dry_run_keeps_no_checkpoint_and_warns_of_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(small_config("debug=fast"), tmp_path)
    assert read_summary(tmp_path)["status"] == "ok" and not (tmp_path / "checkpoints").exists()
    assert "WARNING" not in caplog.text


@pytest.mark.parametrize(
    ("reached", "warned"),
    [(0.02, True), (0.74, True), (0.77, False), (None, False)],
)
def test_a_run_that_is_not_shown_to_be_above_chance_prints_a_warning(
    finished: Path,
    reached: float | None,
    warned: bool,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    summary = read_summary(finished) | {"warnings": [], "chance": 0.64}
    summary["protocol"] |= {"num_test": 100}
    metrics = {name: value for name, value in summary["metrics"].items() if not name.startswith("test/accuracy")}
    metrics |= {} if reached is None else {"test/accuracy": reached}
    print_summary(summary_of(summary | {"metrics": metrics}), finished, [])
    assert ("not shown to be above" in capsys.readouterr().out) is warned
    assert ("n = 100" in caplog.text) is warned and "learned nothing" not in caplog.text
    assert all((word in caplog.text) is warned for word in ("optim.lr", "warmup")) and "max_len" not in caplog.text


def test_run_without_test_scores_reads_validation_only(tmp_path: Path) -> None:
    run(small_config("score_test=false", "pictures=true"), tmp_path / "run")
    summary = read_summary(tmp_path / "run")
    assert summary["status"] == "ok" and summary["protocol"]["score_test"] is False
    assert summary["best"]["value"] == summary["metrics"]["val/accuracy"]
    assert not [name for name in summary["metrics"] if name.startswith("test")]
    assert summary.get("references", []) == []
    assert not [name for name in load_run(tmp_path / "run").predictions if name.startswith("test")]
    run(small_config("score_test=false", "mode=eval", f"resume={tmp_path / 'run'}"), tmp_path / "run")
    again = json.loads((tmp_path / "run" / "eval.json").read_text())
    del again["digests"]  # of all splits: the identity of the data
    assert again["metrics"] and "test" not in json.dumps(again)


@pytest.mark.parametrize(
    ("callback", "option"),
    [
        ("BatchSizeFinder", "data.batch_size"),
        ("LearningRateFinder", "optim.lr"),
        ("GradientAccumulationScheduler scheduling={1:2}", "optim.accumulate"),
    ],
)
def test_a_callback_that_changes_a_recorded_option_is_refused(callback: str, option: str, tmp_path: Path) -> None:
    name, *options = callback.split()
    words = [f"+callbacks.own._target_=pytorch_lightning.callbacks.{name}", *(f"+callbacks.own.{o}" for o in options)]
    with pytest.raises(ConfigError, match=rf"^callbacks.own: {name} changes {option} in training.* set {option}$"):
        run(small_config("callbacks=minimal", *words, "allow_targets=[pytorch_lightning.]"), tmp_path)


def test_a_share_of_the_validation_batches_that_is_none_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^trainer: You requested to check 0\.001 of the `val_dataloader`"):
        run(small_config("trainer.limit_val_batches=0.001"), tmp_path)
