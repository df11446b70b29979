"""A new attention and a new task in a copy of the repository: few files, and the generic tests and `check` pass."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.run_folders import read_summary

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "lab_example"
PLACES = {  # where the classes of the example are in the copy
    "lab_example.neighbours": "sliceformer_lab.attention.neighbours",
    "lab_example.waves": "sliceformer_lab.data.sequences.waves",
    "lab_example.frequency": "sliceformer_lab.tasks.frequency",
}
ATTENTION = {"neighbours.py": "sliceformer_lab/attention", "conf/attention/neighbours.yaml": "conf/attention"}
TASK = {
    "waves.py": "sliceformer_lab/data/sequences",
    "frequency.py": "tasks",
    "conf/task/waves.yaml": "conf/task",
}
RUN = ("task=waves", "attention=neighbours", "data.num_examples=300", "optim.epochs=1", "callbacks=minimal")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with one more attention and one more task."""
    folder = tmp_path_factory.mktemp("copy")
    for name in ("sliceformer_lab", "tasks", "callbacks", "conf", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "golden"))
    for name in ("tasks", "callbacks", "conf"):
        (folder / "sliceformer_lab" / name).symlink_to(folder / name)  # as they are once installed
    shutil.copy(ROOT / "pyproject.toml", folder)
    for file, place in (ATTENTION | TASK).items():
        text = (EXAMPLE / file).read_text(encoding="utf-8")
        for old, new in PLACES.items():
            text = text.replace(old, new)
        (folder / place / Path(file).name).write_text(text, encoding="utf-8")
    return folder


def in_copy(copy: Path, *words: str) -> None:
    """Runs Python in the copy, whose package it imports; fails with what it printed."""
    environment = os.environ | {"PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words], cwd=copy, env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_attention_is_two_files_and_a_task_at_most_four_python_files(copy: Path) -> None:
    assert len(ATTENTION) == 2 and sum(file.endswith(".py") for file in TASK) <= 4
    in_copy(copy, "-m", "sliceformer_lab", "check", "attention=neighbours")
    in_copy(copy, "-m", "sliceformer_lab", *RUN, "hydra.run.dir=run", f"paths.data={copy / 'data'}")
    summary = read_summary(copy / "run")
    assert summary["references"][0]["name"] == "training median", "the task owns its references"
    assert {"predictions.csv", "predicted.png", "mistakes.png"} <= {file.name for file in (copy / "run").iterdir()}
    generic = ("tests/attention/test_attention_contract.py", "tests/config/test_conf.py")
    in_copy(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", *generic, "-k", "neighbours or waves")
