"""Options that follow from the data: batch size, epochs and warm-up, chosen once and recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from support.plans import build_data, run
from support.run_folders import read_summary
from support.runs import SMALL, last_of_each, small_config

from sliceformer_lab.__main__ import main
from sliceformer_lab.config.checked import RunPlan, check_config
from sliceformer_lab.data.spec import Choice
from sliceformer_lab.runs.folder import read_config
from sliceformer_lab.training import build
from sliceformer_lab.training.choices import MAX_LOSS_CHANGE, device_of, with_choices
from sliceformer_lab.training.optim import OptimOptions

AUTO = (
    "optim=auto",
    "optim.epochs=null",
    "data.batch_size=null",
    "optim.least_epochs=2",
    "optim.target_steps=20",
    "callbacks=early_stop",
)


@pytest.mark.parametrize(("gpu", "expected"), [("mps", "cpu"), ("cuda", "cuda")])
def test_steps_on_a_gpu_without_cuda_are_timed_on_the_cpu(
    gpu: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device(gpu))
    assert device_of({"trainer": {"accelerator": "gpu"}}) == expected


@pytest.mark.parametrize(
    ("steps_per_epoch", "options", "expected"),
    [
        (28, {"target_steps": 1000}, 36),  # 36 * 28 = 1008
        (28, {"target_steps": 1000, "most_epochs": 20}, 20),
        (5000, {"target_steps": 1000, "least_epochs": 3}, 3),
        (0, {"target_steps": 10}, 10),  # fewer examples than a batch
    ],
)
def test_epochs_make_the_target_steps_within_their_limits(
    steps_per_epoch: int, options: dict[str, int], expected: int
) -> None:
    assert OptimOptions(epochs=None, **options).epochs_for(steps_per_epoch) == expected


@pytest.mark.parametrize(("examples", "batch_size"), [(64, 16), (1000, 32), (1350, 32), (1400, 64), (100_000, 64)])
def test_batch_size_gives_about_thirty_batches_within_its_limits(examples: int, batch_size: int) -> None:
    config = small_config(*AUTO, "task=digits", f"data.limit_train={min(examples, 1294)}")
    data = build_data(config)
    data.setup()
    data.splits["train"] = data.splits["train"].subset(np.arange(examples) % len(data.splits["train"]))
    assert data.train_batch_size == batch_size


def choices_of(*words: str) -> tuple[RunPlan, list[Choice]]:
    plan = check_config(small_config(*words))
    return with_choices(plan, build.build_data(plan))


def test_choices_say_their_reasons_and_leave_set_options_alone() -> None:
    chosen, choices = choices_of(*AUTO, "data.limit_train=200")
    assert [choice.option for choice in choices] == ["data.batch_size", "optim.epochs"]
    assert chosen.plain["data"]["batch_size"] == 16 and chosen.model.optim.build().epochs == 2
    assert "200 training examples, 13 batches an epoch" in choices[0].reason and "26 steps of" in choices[1].reason
    assert "optim.target_steps=20" in choices[1].reason
    assert choices_of(*AUTO, "data.batch_size=8", "optim.epochs=3")[1] == []


@pytest.mark.parametrize(
    ("words", "epochs", "reason"),
    [
        ("trainer.devices=2", 9, "63 steps of 32 examples"),  # two batches of 16, 7 steps
        ("+trainer.num_nodes=2", 9, "63 steps of 32 examples"),
        ("trainer.limit_train_batches=4", 15, "60 steps of 16 examples"),
        ("trainer.limit_train_batches=0.5", 10, "60 steps of 16 examples"),  # 6 of 13 batches
    ],
)
def test_epochs_are_chosen_by_the_steps_that_they_will_have(words: str, epochs: int, reason: str) -> None:
    chosen, choices = choices_of(*AUTO, "data.limit_train=200", "optim.target_steps=60", words)
    assert reason in choices[1].reason and chosen.model.optim.build().epochs == epochs


@pytest.mark.parametrize(
    ("letters", "epochs", "reason"), [(8, 20, "4 times as many for short texts"), (30, 5, "steps")]
)
def test_short_texts_train_four_times_as_many_steps_in_word_pieces(
    letters: int, epochs: int, reason: str, tmp_path: Path
) -> None:
    table = tmp_path / "texts.csv"
    rows = [f"{number:0{letters}},{'odd' if number % 2 else 'even'}" for number in range(1000, 1500)]
    table.write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    words = ("task=text_csv", f"data.file={table}", f"data.root={tmp_path}", "data.batch_size=16", "optim=auto")
    plan, choices = choices_of(*words, "optim.epochs=null", "optim.target_steps=40", "optim.least_epochs=1")
    chosen = {choice.option: choice for choice in choices}
    assert chosen["optim.epochs"].value == epochs and reason in chosen["optim.epochs"].reason  # 8 batches an epoch
    assert plan.plain["data"]["tokens"] == "bpe"


def test_run_records_its_choices_and_resumes_with_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = last_of_each([*SMALL, *AUTO, "data.limit_train=100", f"paths.outputs={tmp_path}"])
    folder = tmp_path / "sweep"
    sweep = ["-m", *words, f"hydra.sweep.dir={folder}"]
    assert main(sweep) == 0
    (job,) = folder.glob("0-*")
    recorded = read_summary(job)
    assert [choice["option"] for choice in recorded["choices"]] == ["data.batch_size", "optim.epochs"]
    assert read_config(job)["optim"]["epochs"] == recorded["options"]["optim"]["epochs"] == 3
    assert "chose data.batch_size=16 (100 training examples" in capsys.readouterr().out
    assert main(sweep) == 0  # the same command again finds its own, finished run
    assert main(last_of_each([*sweep, "data.limit_train=90"])) != 0  # another run is refused


def test_training_stops_when_validation_no_longer_improves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    stopping = ("callbacks=early_stop", "callbacks.early_stop.patience_share=0.2", "optim.epochs=10", "optim.lr=1e-9")
    run(small_config(*stopping, "optim.warmup_steps=0"), tmp_path / "run")
    summary = read_summary(tmp_path / "run")
    assert summary["status"] == "ok" and summary["best"]["epoch"] == 0
    assert "stopped after" in caplog.text and "val/accuracy has not improved" in caplog.text
    assert summary["steps"]["trained"] < summary["steps"]["planned"]


@pytest.mark.parametrize(
    ("amx", "limit", "std", "precision", "reason"),
    [
        (False, 1.0, 0.02, "32-true", "no AMX"),
        (True, MAX_LOSS_CHANGE, 0.02, "bf16-mixed", "changes the loss of a batch by"),
        (True, 0.0, 0.02, "32-true", "bfloat16 changes the loss"),
        (True, MAX_LOSS_CHANGE, 1e38, "32-true", "not a number"),  # whose squares overflow
    ],
)
def test_precision_is_chosen_by_processor_and_loss(
    amx: bool, limit: float, std: float, precision: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_processor(amx, limit, tmp_path / "cpuinfo", monkeypatch)
    plan, (choice,) = choices_of("trainer.precision=auto", f"encoder.position_std={std}")
    assert choice.option == "trainer.precision" and reason in choice.reason
    assert plan.plain["trainer"]["precision"] == choice.value == precision


def on_processor(amx: bool, limit: float, info: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets precision be chosen as on a processor with AMX or without, by a limit of the change of the loss."""
    info.write_text(f"flags : fpu avx512f {'amx_bf16 amx_tile' if amx else 'avx512_bf16'}\n", encoding="utf-8")
    monkeypatch.setattr("sliceformer_lab.training.choices.PROCESSOR", info)
    monkeypatch.setattr("sliceformer_lab.training.choices.MAX_LOSS_CHANGE", limit)


def test_a_chosen_precision_is_recorded_by_its_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_processor(True, MAX_LOSS_CHANGE, tmp_path / "cpuinfo", monkeypatch)
    run(small_config("trainer.precision=auto"), tmp_path / "run")
    summary = read_summary(tmp_path / "run")
    assert [choice["option"] for choice in summary["choices"]] == ["trainer.precision"]
    assert read_config(tmp_path / "run")["trainer"]["precision"] == "bf16-mixed"
    assert summary["options"]["trainer"]["precision"] == "bf16-mixed"
    assert [start["precision"] for start in summary["starts"]] == ["bf16-mixed"]
