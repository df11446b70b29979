"""A resumed run equals an uninterrupted one; its folder can be scored and opened again."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import official_files
from support.devices import GPU
from support.plans import run
from support.run_folders import read_summary
from support.runs import assert_equal_runs, mark_interrupted, small_config, stopped_at

from sliceformer_lab.__main__ import main
from sliceformer_lab.callbacks.checkpoint import Checkpoints
from sliceformer_lab.errors import RunFolderError
from sliceformer_lab.measures import plots
from sliceformer_lab.measures.probe_record import ProbeRecord
from sliceformer_lab.runs.folder import read_checkpoint, read_metrics
from sliceformer_lab.training.fitting import AtomicCheckpointIO
from sliceformer_lab.training.results import summary as summaries
from sliceformer_lab.training.saved.saved_run import load_run

NOISY = (  # all users of random numbers: dropout, drop path, Mixup, augmentation, workers, shuffling
    *("task=cifar10", "data.verify=false", "data.num_workers=2", "data.batch_size=16"),
    *("encoder.dropout=0.1", "encoder.embed_dropout=0.1", "encoder.drop_path=0.2", "task.mixup=0.4"),
    *("optim.epochs=3", "optim.lr=0.001", "optim.interval=step", "optim.warmup_steps=3", "trainer.log_every_n_steps=1"),
)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cifar10")
    official_files.cifar10(root)
    return root


@pytest.fixture(scope="module")
def digits(uninterrupted: Callable[..., Path]) -> Path:
    return uninterrupted()


def contents(folder: Path) -> dict[Path, bytes]:
    """All files of a run except the log and what other processes read."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {file: file.read_bytes() for file in files if file.suffix != ".log" and file.name != ".processes.yaml"}


def unfinished_copy(folder: Path, place: Path) -> Path:
    """A copy of a finished run, marked as interrupted."""
    return mark_interrupted(shutil.copytree(folder, place / "copy"))


DEVICE_OPTIONS = {  # deterministic=true: cuBLAS and cuDNN then repeat a computation bit for bit
    "cpu": ("trainer=cpu",),
    "cuda": ("trainer=gpu", "trainer.deterministic=true", "trainer.benchmark=false"),
}


@pytest.mark.parametrize("device", [pytest.param("cpu", marks=pytest.mark.slow), GPU])
@pytest.mark.parametrize("attention", ["mha", "csp"])
def test_resumed_run_in_bf16_equals_an_uninterrupted_one_on_each_device(
    device: str, attention: str, pictures: Path, tmp_path: Path
) -> None:
    options = (f"data.root={pictures}", f"attention={attention}", "trainer.precision=bf16-mixed")
    config = small_config(*NOISY, *options, *DEVICE_OPTIONS[device])
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    run(config, whole)
    with stopped_at(2, 2):
        run(config, stopped)
    assert main([f"resume={stopped}"]) == 0
    assert_equal_runs(whole, stopped)


@pytest.mark.parametrize(
    ("place", "missing"),
    [({"epoch": 0, "batch": 1}, "checkpoints"), ({"epoch": None, "hook": "on_test_start"}, "predictions.npz")],
    ids=["before its first checkpoint", "while scoring"],
)
def test_run_stopped_before_or_after_its_training_ends_as_others(
    place: dict[str, Any], missing: str, digits: Path, tmp_path: Path
) -> None:
    with stopped_at(**place):
        run(small_config(), tmp_path / "stopped")
    assert not (tmp_path / "stopped" / missing).exists()
    folder = (tmp_path / "stopped").rename(tmp_path / "moved")
    assert main([f"resume={folder}"]) == 0
    assert_equal_runs(digits, folder)


def test_best_weights_survive_a_worse_epoch_after_the_resume(tmp_path: Path) -> None:
    with stopped_at(1):
        run(small_config(), tmp_path)
    file = tmp_path / "checkpoints" / "last.ckpt"
    content = read_checkpoint(file)
    content["callbacks"]["Checkpoints"]["best"] = 0.999
    AtomicCheckpointIO().save_checkpoint(content, file)
    assert main([f"resume={tmp_path}"]) == 0
    assert read_summary(tmp_path)["best"]["epoch"] == 0
    assert read_checkpoint(file)["epoch"] == 1


def test_resume_with_another_precision_or_code_is_recorded_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stopped_at(1):
        run(small_config(), tmp_path)
    monkeypatch.setattr(summaries, "code_version", lambda config: "0123456789ab")
    with caplog.at_level("WARNING"):
        run(small_config("trainer.precision=bf16-mixed"), tmp_path)
    assert "trainer.precision=bf16-mixed continues a run that was trained with 32-true" in caplog.text
    assert "the code has changed" in caplog.text and "to 0123456789ab" in caplog.text
    summary = read_summary(tmp_path)
    starts = summary["starts"]
    assert summary["wall_seconds"] == pytest.approx(sum(start["seconds"] for start in starts), abs=0.02)
    assert starts[1]["git_commit"] == "0123456789ab" != starts[0]["git_commit"]
    assert [start["precision"] for start in starts] == ["32-true", "bf16-mixed"]
    assert [(start["from_step"], start["status"]) for start in starts] == [(0, "failed"), (2, "ok")]


def test_resumes_keep_the_spectrum_before_training_and_add_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "plot_spectra", lambda *_: None)  # drawing takes longer than a run
    options = ("callbacks.spectrum.every_n_epochs=2", "callbacks.checkpoints.every_minutes=0", "optim.epochs=3")
    config = small_config("callbacks=default", *options)
    with stopped_at(0, 1):
        run(config, tmp_path)
    before = ProbeRecord.load(tmp_path / "spectrum.npz")
    with stopped_at(2):
        run(config, tmp_path)
    run(config, tmp_path)
    found = ProbeRecord.load(tmp_path / "spectrum.npz")
    assert before.epochs.tolist() == [-1] and found.epochs.tolist() == [-1, 1, 2]
    np.testing.assert_array_equal(found.mean["stable_rank"][0], before.mean["stable_rank"][0])


def test_a_file_of_metrics_with_a_header_alone_hides_no_earlier_one(digits: Path, tmp_path: Path) -> None:
    first = digits / "csv" / "version_0" / "metrics.csv"
    for number, text in enumerate((first.read_text(), first.read_text().splitlines()[0] + "\n")):
        (tmp_path / "csv" / f"version_{number}").mkdir(parents=True)
        (tmp_path / "csv" / f"version_{number}" / "metrics.csv").write_text(text)
    assert len(read_metrics(digits)) == len(read_metrics(tmp_path)) > 0


def test_finished_run_does_not_change(digits: Path) -> None:
    before = contents(digits)
    assert main([f"resume={digits}"]) == 0
    assert contents(digits) == before


def test_evaluation_reproduces_the_metrics_and_changes_nothing(
    digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(digits, tmp_path / "copy")
    before = contents(folder)
    assert main(["mode=eval", f"resume={folder}", "callbacks=default"]) == 0
    after = contents(folder)
    again = json.loads(after.pop(folder / "eval.json"))
    assert after == before and again["metrics"] == read_summary(folder)["metrics"]
    assert "recorded" in capsys.readouterr().out


def test_evaluation_repeats_the_metrics_of_an_attention_that_draws_its_tokens(tmp_path: Path) -> None:
    run(small_config("attention=samsa_published", "attention.sample_size=8"), tmp_path)
    assert main(["mode=eval", f"resume={tmp_path}"]) == 0
    again = json.loads((tmp_path / "eval.json").read_text())
    assert again["metrics"] == read_summary(tmp_path)["metrics"]


def test_the_step_of_a_reached_score_is_that_of_the_training_not_of_the_scored_checkpoint(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = read_metrics(digits)["val/accuracy"].dropna()
    assert first < second
    monkeypatch.setattr(Checkpoints, "_improved", lambda self, score: not (self._folder / "best.ckpt").exists())
    run(small_config("selection=best_test", f"optim.stop_at={(first + second) / 2}"), tmp_path)
    summary = read_summary(tmp_path)
    assert summary["best"]["epoch"] == 0 and summary["steps_to_stop_at"] == summary["steps"]["trained"]


class Hostile:
    """An object whose unpickling runs code."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.trace,)


def truncate(file: Path, trace: Path) -> None:
    file.write_bytes(file.read_bytes()[:1000])


def make_hostile(file: Path, trace: Path) -> None:
    torch.save(read_checkpoint(file) | {"extra": Hostile(trace)}, file)


def make_a_bare_pickle(file: Path, trace: Path) -> None:
    file.write_bytes(pickle.dumps(Hostile(trace)))


def take_from_another_model(file: Path, trace: Path) -> None:
    content = read_checkpoint(file)
    content["state_dict"]["head.weight"] = torch.zeros(7, 64)
    torch.save(content, file)


def drop_the_model(file: Path, trace: Path) -> None:
    torch.save({"epoch": 1}, file)


@pytest.mark.parametrize(
    ("damage", "mode", "sentence"),
    [
        (make_hostile, "train", "cannot be read as a checkpoint"),
        (make_a_bare_pickle, "eval", "cannot be read as a checkpoint"),
        (take_from_another_model, "train", "belongs to another model"),
        (drop_the_model, "eval", "holds no model"),
    ],
)
def test_unusable_checkpoint_is_refused_in_a_sentence_and_never_executed(
    damage: Callable[[Path, Path], None],
    mode: str,
    sentence: str,
    digits: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    folder, trace = unfinished_copy(digits, tmp_path), tmp_path / "trace"
    name = "last" if mode == "train" else "best"
    file = folder / "checkpoints" / f"{name}.ckpt"
    for other in {"last", "previous", "best"} - {name}:
        (folder / "checkpoints" / f"{other}.ckpt").unlink()
    damage(file, trace)
    damaged = file.read_bytes()
    capfd.readouterr()
    assert main([f"mode={mode}", f"resume={folder}"]) == 1
    printed = capfd.readouterr()
    assert f"{file} {sentence}" in printed.err and "Traceback" not in printed.err + printed.out
    assert not trace.exists() and file.read_bytes() == damaged


def test_a_run_without_its_checkpoints_warns_that_it_begins_anew(
    digits: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = unfinished_copy(digits, tmp_path)
    reached = read_summary(folder)["starts"][-1]["to_step"]
    shutil.rmtree(folder / "checkpoints")
    assert main([f"resume={folder}"]) == 0
    assert f"WARNING: no checkpoint is left of the {reached} steps trained before" in capfd.readouterr().out


def fill_with_nan(file: Path, trace: Path) -> None:
    content = read_checkpoint(file)
    content["state_dict"]["head.weight"].fill_(torch.nan)
    torch.save(content, file)


@pytest.mark.parametrize(
    ("damage", "damaged", "used"),
    [
        (truncate, ("last",), "previous"),
        (fill_with_nan, ("last", "previous"), "best"),
    ],
)
def test_run_goes_on_from_the_newest_checkpoint_that_can_be_used(
    damage: Callable[[Path, Path], None],
    damaged: tuple[str, ...],
    used: str,
    digits: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = unfinished_copy(digits, tmp_path)
    files = [folder / "checkpoints" / f"{name}.ckpt" for name in damaged]
    for file in files:
        damage(file, tmp_path / "trace")
    with caplog.at_level("WARNING"):
        run(load_run(folder).config, folder)
    assert all(f"{file} " in caplog.text for file in files) and f"going on from {used}.ckpt instead" in caplog.text
    assert read_summary(folder)["metrics"] == read_summary(digits)["metrics"]


def test_damaged_summary_does_not_block_a_resume(digits: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(digits, tmp_path / "copy")
    (folder / "summary.json").write_text('{"status": "ok", "wall_sec')
    run(load_run(folder).config, folder)
    assert_equal_runs(digits, folder)


def test_evaluation_without_a_finished_epoch_is_refused(digits: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(digits, tmp_path / "copy")
    (folder / "checkpoints" / "best.ckpt").unlink()
    with pytest.raises(RunFolderError, match=r"has not finished an epoch, or tried one batch only \(debug=fast\)"):
        run(load_run(folder).config | {"mode": "eval"}, folder)
