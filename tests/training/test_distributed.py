"""Two processes train one model and write one run folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from support.devices import DEVICES
from support.other_process import run_python
from support.run_folders import read_summary
from support.runs import SMALL, assert_equal_runs, last_of_each

from sliceformer_lab.__main__ import main
from sliceformer_lab.runs.folder import read_checkpoint
from sliceformer_lab.training.saved.saved_run import load_run

TWO = ("trainer=ddp", "trainer.accelerator=cpu", "trainer.devices=2", "trainer.precision=32-true")
MAX_SECONDS = 280  # seconds that a process may take on a busy machine
pytestmark = pytest.mark.slow


UNHAPPY = """
from pytorch_lightning import Callback

class Unhappy(Callback):
    def on_train_epoch_start(self, trainer, module):
        if (trainer.global_rank, module.optim.lr) == (1, 0.003):
            raise ValueError("only this process is unhappy")
"""


def start(outputs: Path, *options: str) -> subprocess.Popen[str]:
    words = last_of_each([*SMALL, *TWO, f"paths.outputs='{outputs}'", *options])
    command = [sys.executable, "-m", "sliceformer_lab", *words]
    environment = os.environ | {"PYTHONPATH": str(outputs.parent)}
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)


class Sweep(NamedTuple):
    """A finished sweep."""

    code: int
    printed: str
    errors: str
    jobs: list[Path]  # its run folders


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """A sweep of three distributed jobs; the second one diverges, and in the third one the second process fails."""
    outputs = tmp_path_factory.mktemp("distributed") / "with spaces, and = signs"
    (outputs.parent / "unhappy.py").write_text(UNHAPPY)
    unhappy = ("allow_targets=[unhappy.]", "+callbacks.last={_target_: unhappy.Unhappy}")
    rates = ("-m", "optim.lr=0.002,1e30,0.003", "optim.warmup_steps=0", "optim.epochs=3", "data.limit_eval=null")
    process = start(outputs, *rates, *unhappy, "callbacks=default", "attention=csp")
    printed, errors = process.communicate(timeout=MAX_SECONDS)
    return Sweep(process.returncode, printed, errors, sorted(file.parent for file in outputs.rglob("summary.json")))


@pytest.mark.parametrize("device", DEVICES)
def test_one_process_of_ddp_trains_as_a_run_without(device: str, tmp_path: Path) -> None:
    exact = ("trainer.precision=32-true", "trainer.deterministic=true", "trainer.benchmark=false", "attention=csp")
    here = ("trainer.accelerator=cpu",) if device == "cpu" else ("trainer.accelerator=gpu",)
    for name, trainer in (("ddp", "ddp"), ("alone", device.replace("cuda", "gpu"))):
        options = (f"trainer={trainer}", "trainer.devices=1", *here, *exact, f"hydra.run.dir='{tmp_path / name}'")
        done = run_python("-m", "sliceformer_lab", *last_of_each([*SMALL, *options]))
        assert done.returncode == 0, done.stderr
    assert_equal_runs(tmp_path / "alone", tmp_path / "ddp")


def test_each_job_of_a_sweep_has_one_folder(sweep: Sweep) -> None:
    assert [job.name[:2] for job in sweep.jobs] == ["0-", "1-", "2-"]
    assert {place for place in sweep.jobs[0].parent.iterdir() if place.is_dir()} == set(sweep.jobs)
    for job in sweep.jobs:
        assert [(job / name).is_file() for name in ("config.yaml", ".processes.yaml")] == [True, True]
        assert {file.name for file in job.glob("*.log")} == {"sliceformer_lab.log"}


def test_two_processes_share_a_run(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = sweep.jobs[0]
    monkeypatch.syspath_prepend(folder.parents[3])  # of the callback
    found = load_run(folder)
    assert found.summary["status"] == "ok", sweep.errors
    assert [len(list((folder / name).iterdir())) for name in ("csv", "checkpoints")] == [1, 3]
    assert sweep.printed.count("test/accuracy_top5") == 1 and "unused" not in sweep.errors
    assert read_checkpoint(folder / "checkpoints" / "last.ckpt")["global_step"] == 3  # 2 x 64 examples, 3 epochs
    for split in ("val", "test"):
        np.testing.assert_array_equal(found.predictions[f"{split}_ids"], np.arange(299))
    assert main(["mode=eval", f"resume='{folder}'", "trainer=cpu", "allow_targets=[unhappy.]"]) == 0
    again = json.loads((folder / "eval.json").read_text())["metrics"]
    assert again == pytest.approx(found.summary["metrics"], abs=1e-6)


def test_all_processes_stop_at_a_bad_loss(sweep: Sweep) -> None:
    assert sweep.code == 1 and "Traceback" not in sweep.errors
    assert sweep.printed.count("this job diverged: the training loss became nan") == 1
    assert read_summary(sweep.jobs[1])["status"] == "diverged"


def test_the_error_of_another_process_is_the_error_of_the_run(sweep: Sweep) -> None:
    summary = read_summary(sweep.jobs[2])
    assert summary["status"] == "failed"
    assert summary["error"].endswith("process 2 of 2: ValueError: only this process is unhappy")


def test_all_processes_stop_when_the_first_is_signalled_and_go_on_within_the_epoch(tmp_path: Path) -> None:
    options = ("optim.epochs=20", "data.batch_size=8", "encoder.dropout=0.1", "reference=null")  # 8 steps an epoch
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    other = start(tmp_path, *options, f"hydra.run.dir={whole}")
    process = start(tmp_path, *options, f"hydra.run.dir={stopped}")
    for line in process.stdout or ():
        if line.startswith("epoch 1/"):
            break
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=MAX_SECONDS)  # ends only when the other process has closed its output, too
    assert process.returncode == 143 and "Traceback" not in errors
    assert errors.count("stopped by SIGTERM") == 1
    assert read_summary(stopped)["status"] == "interrupted"
    resumed = run_python("-m", "sliceformer_lab", f"resume={stopped}")
    assert resumed.returncode == 0, resumed.stderr
    other.communicate(timeout=MAX_SECONDS)
    assert read_summary(stopped)["starts"][1]["from_step"] > 0
    assert_equal_runs(whole, stopped)
