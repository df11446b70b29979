"""Jobs of the command line: where they write, sweeps with failures, what a resumed run may change."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.endings import train_in_turn
from support.other_process import run_python
from support.run_folders import read_summary
from support.runs import TINY, last_of_each

from sliceformer_lab.cli import run_once
from sliceformer_lab.errors import Interrupted
from sliceformer_lab.tasks.image import ImageClassification

TINY_MHA = (*TINY, "attention=mha")
BENCHMARK = "trainer.benchmark=true"  # which cannot change a result
Lab = Callable[..., int]


def jobs_of(folder: Path) -> list[Path]:
    (sweep,) = (folder / "outputs" / "sweeps").iterdir()
    return sorted(path for path in sweep.iterdir() if path.is_dir())


def test_single_run_has_a_folder_of_its_task_attention_time_and_options(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_in_turn(monkeypatch, None, None)
    assert lab(*TINY_MHA) == lab(*TINY_MHA) == 0
    folders = list((tmp_path / "outputs" / "digits" / "mha").iterdir())
    assert len(folders) == 2
    pattern = r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d-\d{6}-([0-9a-f]{6})"
    digests = {re.fullmatch(pattern, folder.name)[1] for folder in folders}
    assert len(digests) == 1, "the same options have the same digest"
    assert not (tmp_path / "outputs" / "sweeps").exists()


def test_sweep_runs_every_combination_in_a_folder_of_its_own(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lab("-m", *TINY_MHA, "data.limit_train=32", "data.limit_eval=32", "attention=mha,identity", "seed=1") == 0
    assert [folder.name.rpartition("-")[0] for folder in jobs_of(tmp_path)] == ["0-digits-mha", "1-digits-identity"]
    summaries = [read_summary(folder) for folder in jobs_of(tmp_path)]
    assert [(s["attention"], s["seed"], s["status"]) for s in summaries] == [("mha", 1, "ok"), ("identity", 1, "ok")]
    of_all = [*TINY, "data.limit_train=32", "data.limit_eval=32"]
    assert set(summaries[1]["command"]) == {*last_of_each(of_all), "attention=identity", "seed=1"}, "it repeats one run"
    printed = capsys.readouterr().out
    sweep = jobs_of(tmp_path)[0].parent
    assert re.search(rf"\njobs in {sweep}, val/accuracy\n  0-digits-mha-\w+  ok  0\.\d{{4}}\n", printed)
    assert printed.endswith(f"compare them with: python -m sliceformer_lab report {sweep}\n")


def test_failing_jobs_leave_the_others_running_and_are_listed_at_the_end(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train_in_turn(monkeypatch, None, RuntimeError("out of cheese"), SystemExit(0), SystemExit("no"), None)
    assert lab("-m", *TINY_MHA, "seed=0,1,2,3,-4,5") == 1
    printed = capsys.readouterr()
    table = printed.out[printed.out.index("\njobs in ") :]
    assert [line.split("  ", 3)[2:] for line in table.splitlines()[2:]] == [
        ["ok", "0.5000"],
        ["failed", "RuntimeError: out of cheese"],
        ["failed", "the job called sys.exit(0)"],
        ["failed", "the job called sys.exit('no')"],
        ["failed", "seed: given -4, should be greater than or equal to 0"],
        ["ok", "0.5000"],
    ]
    assert printed.err.startswith("sliceformer-lab: 4 of 6 jobs did not finish; `sweep retry ")
    assert printed.err.endswith("` tries 4 again\n")
    log = (jobs_of(tmp_path)[1] / "sliceformer_lab.log").read_text()
    assert "Traceback" in log and "out of cheese" in log


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (Interrupted("stopped", 15), 143, "stopped"),
        (SystemExit(0), 1, "the job called sys.exit(0)"),
        (RuntimeError("out of cheese"), 1, "RuntimeError: out of cheese"),
    ],
)
def test_single_run_ends_with_one_sentence_and_its_code(
    lab: Lab,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    sentence: str,
) -> None:
    train_in_turn(monkeypatch, error)
    assert lab(*TINY_MHA) == code
    assert capsys.readouterr().err == f"sliceformer-lab: {sentence}\n"


def test_resume_keeps_the_configuration_and_takes_only_what_cannot_change_the_result(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lab(*TINY_MHA, "hydra.run.dir=first", BENCHMARK) == 0
    files = {file: file.stat().st_mtime_ns for file in (tmp_path / "first").rglob("*")}
    for changed in ("attention=csp", "optim.epochs=3", "debug=fast", "seed=1", "callbacks=ema"):
        capsys.readouterr()
        assert lab("resume=first", changed) == 1
        kept = "the run has other" if changed.startswith("callbacks=") else "a resumed run keeps its configuration"
        assert capsys.readouterr().err.startswith(f"sliceformer-lab: {changed}: {kept}")
    assert lab("hydra.run.dir=first") == 1
    assert "holds a run already; continue it with resume=" in capsys.readouterr().err
    assert lab("-m", "resume=first", "mode=eval,train") == 1
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "first").rglob("*")} == files, "nothing was touched"

    assert read_summary(tmp_path / "first")["command"] == [*TINY_MHA, BENCHMARK]

    assert lab("mode=eval", "resume=first", "attention=mha", "trainer.log_every_n_steps=3") == 0
    saved = (tmp_path / "first" / ".processes.yaml").read_text()
    assert "log_every_n_steps: 3" in saved and "benchmark: true" in saved and "encoder.mha" not in saved

    (tmp_path / "first" / "summary.json").write_text("{")
    assert lab("resume=first") == 0
    assert "command" not in read_summary(tmp_path / "first"), "it is lost, and not resume="


def test_more_processes_than_cores_are_refused_unless_asked_for(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train_in_turn(monkeypatch, None)
    many = (*TINY_MHA, "trainer=ddp", "trainer.accelerator=cpu", "trainer.devices=999")
    assert lab(*many) == 1
    assert capsys.readouterr().err.startswith("sliceformer-lab: trainer.devices=999: the run may use ")
    assert lab(*many, "oversubscribe=true") == 0


def test_signal_between_two_jobs_ends_a_sweep(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train_in_turn(monkeypatch, None, None, None)
    check = run_once.check_hydra_words

    def signalling(words: Sequence[str]) -> None:
        if "seed=1" in words:
            os.kill(os.getpid(), signal.SIGHUP)
        check(words)

    monkeypatch.setattr(run_once, "check_hydra_words", signalling)
    assert lab("-m", *TINY_MHA, "seed=0,1,2") == 129
    assert capsys.readouterr().err.count("stopped by SIGHUP") == 1


def test_a_job_that_slurm_starts_again_goes_on_in_its_folder(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    step = ImageClassification.training_step

    def signalling(self: ImageClassification, batch: Any, batch_idx: int) -> Any:
        if self.trainer.current_epoch == 1:
            os.kill(os.getpid(), signal.SIGUSR1)
        return step(self, batch, batch_idx)

    words = (*TINY_MHA, "optim.epochs=3", "reference=null")
    for name, value in {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "1", "SLURM_JOB_NAME": "train"}.items():
        monkeypatch.setenv(name, value)
    with monkeypatch.context() as patch:
        patch.setattr(ImageClassification, "training_step", signalling)
        assert lab(*words) == 138
    (folder,) = (tmp_path / "outputs" / "digits" / "mha").iterdir()
    assert folder.name.startswith("slurm-7-") and not list(folder.rglob("hpc_ckpt*"))
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    capsys.readouterr()
    assert lab(*words) == 0
    assert read_summary(folder)["status"] == "ok"
    printed = capsys.readouterr().out
    assert "epoch 3/3" in printed and "epoch 1/3" not in printed, "it goes on"
    assert read_summary(folder)["command"] == last_of_each(words)
    assert lab(*words) == 0 and "holds a finished run" in capsys.readouterr().out
    assert list(folder.parent.iterdir()) == [folder]


def test_a_run_repeated_in_one_slurm_job_has_a_folder_of_its_own(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    train_in_turn(monkeypatch, None, None, None)
    assert lab(*TINY_MHA) == lab(*TINY_MHA) == lab(*TINY_MHA, "seed=1") == 0
    names = {folder.name.rpartition("-")[0] for folder in (tmp_path / "outputs" / "digits" / "mha").iterdir()}
    assert len(names) == 2 and "slurm-7" in names


@pytest.mark.slow
def test_a_run_on_one_batch_and_a_profiled_one_which_prints_the_times_of_its_parts(lab: Lab, tmp_path: Path) -> None:
    words = ("optim.epochs=1", "encoder=tiny", "callbacks=minimal", "pictures=false")
    assert lab("debug=overfit", *words) == 0
    words = ("debug=profile", *words)
    ended = run_python("-m", "sliceformer_lab", *words, cwd=tmp_path)  # Lightning's log goes to a stream of its import
    assert ended.returncode == 0 and "run_training_batch" in ended.stdout + ended.stderr


def test_arguments_and_environment_are_left_as_they_were(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    before = list(sys.argv), dict(os.environ)
    assert lab("sed=1") == 1
    assert (sys.argv, dict(os.environ)) == before
