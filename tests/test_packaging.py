"""The installed package works outside the repository, beside files that have the names of its folders."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMES = ("tasks", "callbacks", "conf")
TRAIN_AND_OPEN = """
import sys
from pathlib import Path
import callbacks, conf, tasks
assert tasks.MINE and callbacks.MINE and conf.MINE
from sliceformer_lab.__main__ import main
small = ["encoder=tiny", "optim.epochs=1", "data.limit_train=64", "data.limit_eval=64", "callbacks=minimal"]
code = main([*small, "hydra.run.dir=run"])
from sliceformer_lab import load_run
model = load_run("run").model
print(sys.modules[type(model).__module__].__file__)
sys.exit(code)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder, with modules of the user's own under the names of our top-level folders."""
    (tmp_path / "tasks.py").write_text("MINE = True\n")
    (tmp_path / "conf.py").write_text("MINE = True\n")
    (tmp_path / "callbacks").mkdir()
    (tmp_path / "callbacks" / "__init__.py").write_text("MINE = True\n")
    return tmp_path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from the files that git tracks, without a C++ compiler."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True)
    for name in listed.stdout.decode().splitlines():
        if not name.startswith(("tests/", "docs/")) and (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(built), "."]
    subprocess.run(command, cwd=source, check=True, env=os.environ | {"CC": "false", "CXX": "false"}, timeout=240)
    (file,) = built.glob("*.whl")
    return file


def train_and_open(folder: Path, *path: Path) -> Path:
    """Trains for an epoch in `folder`, opens the run, and returns the file that its task's class comes from."""
    done = subprocess.run(
        [sys.executable, "-c", TRAIN_AND_OPEN],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.splitlines()[-1])


def test_wheel_holds_every_package_under_one_name(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")  # no compiler, so nothing in it depends on the machine
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"sliceformer_lab"}
    for folder in NAMES:
        tracked = [file for file in (ROOT / folder).rglob("*") if file.suffix in (".py", ".yaml")]
        assert {f"sliceformer_lab/{file.relative_to(ROOT).as_posix()}" for file in tracked} <= set(names)
    assert "sliceformer_lab/py.typed" in names and any(name.endswith("paper_results.csv") for name in names)


def test_wheel_runs_beside_files_with_our_folders_names(
    wheel: Path, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    site = tmp_path_factory.mktemp("site")
    zipfile.ZipFile(wheel).extractall(site)
    assert train_and_open(folder, site).is_relative_to(site)


@pytest.mark.slow
def test_editable_install_runs_beside_files_with_our_folders_names(folder: Path) -> None:
    assert train_and_open(folder) == ROOT / "tasks" / "image.py"
