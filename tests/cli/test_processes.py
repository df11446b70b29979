"""The command line as real processes: how it is started, stopped and repeated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from support.other_process import run_python, wait_for
from support.run_folders import read_summary

MODULE = ("-m", "sliceformer_lab")
SCRIPT = Path(sysconfig.get_path("scripts")) / "sliceformer-lab"
SMALL = ("encoder=tiny", "data.limit_train=64", "callbacks=minimal", "pictures=false", "attention=mha")


def stopped_in_training(folder: Path, words: tuple[str, ...], stop: Callable[[int], None]) -> tuple[int, str, str]:
    """The exit code and the output of a program that `stop` ends, by its process, once there is a checkpoint."""
    pipe = subprocess.PIPE
    command = (sys.executable, *MODULE, *SMALL, "optim.epochs=10000", *words)
    with subprocess.Popen(command, cwd=folder, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        wait_for(lambda: list(folder.rglob("last.ckpt")))
        stop(process.pid)
        out, err = process.communicate(timeout=120)
    assert "Traceback" not in out + err
    return process.returncode, out, err


@pytest.mark.slow
def test_script_trains_from_any_folder_whatever_files_are_in_it(tmp_path: Path) -> None:
    for name in ("tasks.py", "callbacks.py", "conf.py"):
        (tmp_path / name).write_text("raise SystemExit('the wrong module')")
    command = [SCRIPT, *SMALL, "optim.epochs=1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "outputs" / "digits" / "mha").iterdir()
    assert (folder / "sliceformer_lab.log").is_file()
    assert str(folder) in done.stdout


def test_module_refuses_a_wrong_option_and_writes_nothing(tmp_path: Path) -> None:
    done = run_python(*MODULE, "attention=cps", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("sliceformer-lab: attention=cps: ") and done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_stops_a_sweep_and_its_job_can_go_on(tmp_path: Path, number: int, code: int) -> None:
    found, out, err = stopped_in_training(tmp_path, ("-m", "seed=0,1"), lambda process: os.kill(process, number))
    assert found == code and "interrupted  stopped by SIG" in out, err
    (job,) = (path.parent for path in tmp_path.rglob("summary.json"))
    assert read_summary(job)["status"] == "interrupted"
    assert "2 of 2 jobs did not finish" in err


@pytest.mark.slow
def test_signal_to_the_whole_group_interrupts_a_run_whose_data_workers_die(tmp_path: Path) -> None:
    words = ("data.num_workers=2", "hydra.run.dir=run")
    code, _, err = stopped_in_training(tmp_path, words, lambda process: os.killpg(process, signal.SIGTERM))
    assert code == 143 and err.count("stopped by SIGTERM") == 1, err
    assert read_summary(tmp_path / "run")["status"] == "interrupted"
