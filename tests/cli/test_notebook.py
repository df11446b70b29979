"""Runs and sweeps started from Python, and a sweep as a table."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.other_process import run_python
from support.run_folders import write_run
from support.runs import SMALL

import sliceformer_lab
from sliceformer_lab.errors import LabError

QUICK = (*SMALL[:-2], "data.limit_train=64", "optim.epochs=1")


def test_a_run_starts_from_python_and_is_returned(tmp_path: Path) -> None:
    one = sliceformer_lab.run(*QUICK, folder=tmp_path / "run 1")
    assert one.summary["status"] == "ok" and one.folder == tmp_path / "run 1"
    with pytest.raises(LabError, match="did you mean csp"):
        sliceformer_lab.run("attention=cps", folder=tmp_path / "other")


def test_a_sweep_from_python_is_a_table_with_its_failed_jobs_and_goes_on(tmp_path: Path) -> None:
    words = (*QUICK, "optim.lr=0.002,1e30")
    table = sliceformer_lab.sweep(*words, folder=tmp_path / "sweep")
    assert table["status"].tolist() == ["ok", "diverged"] and table["optim.lr"].tolist() == ["0.002", "1e+30"]
    assert table["test/accuracy"].notna().tolist() == [True, False]
    again = sliceformer_lab.sweep(*words, folder=tmp_path / "sweep")
    assert again["wall_seconds"][0] == table["wall_seconds"][0]
    with pytest.raises(LabError, match="is not the folder of a sweep"):
        sliceformer_lab.sweep("attention=cps,csp", folder=tmp_path / "other")


def test_a_script_that_starts_a_sweep_runs_once(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    words = (*QUICK, "optim.lr=0.001,0.002", "seed=0,1", "launcher=local", "launcher.jobs=2")
    script.write_text(
        "import pathlib, sliceformer_lab\n"
        "print('one start', file=pathlib.Path('starts').open('a'))\n"
        f"print(sliceformer_lab.sweep(*{words}, folder='sweep')['status'].tolist())\n"
    )  # four jobs, whose time is estimated first, by another process too; no `if __name__ == '__main__'`
    done = run_python(str(script), cwd=tmp_path)
    assert str(["ok"] * 4) in done.stdout and "Traceback" not in done.stderr, done.stderr
    assert (tmp_path / "starts").read_text() == "one start\n"


def test_a_table_has_options_metrics_cost_and_digests(tmp_path: Path) -> None:
    write_run(tmp_path / "0-csp", digests={"test": "0a1b"}, options={"encoder.depth": 8})
    write_run(tmp_path / "1-mha", "mha", 1, None)
    table = sliceformer_lab.load_sweep(tmp_path)
    assert len(table) == 2 and table["attention"].tolist() == ["csp", "mha"]
    first = table.iloc[0]
    assert (first["encoder.depth"], first["parameters"], first["test/accuracy"]) == ("8", 100_000, 0.9)
    assert (first["data_sha256"], first["test_sha256"]) == ("65e5", "0a1b") and first["git_commit"]
    assert table["error"][1] == "RuntimeError: out of luck"
