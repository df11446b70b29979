"""Two processes train one model into one run folder."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.runs import SMALL

from sliceformer_lab.__main__ import main
from sliceformer_lab.runs.folder import read_checkpoint, read_summary
from sliceformer_lab.training.saved_run import load_run

TWO = ("trainer=ddp", "trainer.accelerator=cpu", "trainer.devices=2", "trainer.precision=32-true")
pytestmark = pytest.mark.slow


def start(outputs: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "sliceformer_lab", *SMALL, *TWO, f"paths.outputs='{outputs}'", *options]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def only_run(outputs: Path) -> Path:
    (folder,) = {file.parent for file in outputs.rglob("summary.json")}
    return folder


def test_two_processes_share_a_run(tmp_path: Path) -> None:
    process = start(tmp_path / "with spaces, and = signs", "callbacks=default", "attention=csp")
    printed, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    folder = only_run(tmp_path)
    (record,) = folder.parent.iterdir()
    found = load_run(folder)
    assert record == folder and found.summary["status"] == "ok"
    assert {file.name for file in folder.glob("*.log")} == {"sliceformer_lab.log"}
    assert [len(list((folder / name).iterdir())) for name in ("csv", "checkpoints")] == [1, 2]
    assert printed.count("test/accuracy_top5") == 1 and "unused" not in errors
    assert read_checkpoint(folder / "checkpoints" / "last.ckpt")["global_step"] == 2  # 2 x 64 examples, 2 epochs
    for split in ("val", "test"):
        np.testing.assert_array_equal(found.predictions[f"{split}_ids"], np.arange(299))
    assert main(["mode=eval", f"resume='{folder}'", "trainer=cpu"]) == 0
    again = json.loads((folder / "eval.json").read_text())["metrics"]
    assert again == pytest.approx(found.summary["metrics"], abs=1e-6)


def test_all_processes_stop_when_the_first_is_signalled(tmp_path: Path) -> None:
    process = start(tmp_path, "optim.epochs=100000")
    for line in process.stdout or ():
        if line.startswith("epoch 1/"):
            break
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=200)  # ends only when the other process has closed its output, too
    assert process.returncode == 143 and "Traceback" not in errors
    assert errors.count("stopped by SIGTERM") == 1
    assert read_summary(only_run(tmp_path))["status"] == "interrupted"


def test_all_processes_stop_at_a_bad_loss(tmp_path: Path) -> None:
    process = start(tmp_path, "optim.lr=1e30", "optim.warmup_steps=0", "optim.epochs=20")
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 1 and "Traceback" not in errors
    assert errors.count("the training loss became nan") == 1
    assert read_summary(only_run(tmp_path))["status"] == "diverged"
