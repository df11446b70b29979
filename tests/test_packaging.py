"""The installed package works outside the repository, beside files that have the names of its folders."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import pytest
from support.other_process import run_python

ROOT = Path(__file__).parents[1]
NAMES = ("tasks", "callbacks", "conf")
OPERATOR = ROOT / "packages" / "shift-sort"
TRAIN_AND_OPEN = """
import sys
from pathlib import Path
import callbacks, conf, tasks
assert tasks.MINE and callbacks.MINE and conf.MINE
from sliceformer_lab.__main__ import main
small = ["encoder=tiny", "optim.epochs=1", "data.limit_train=64", "data.limit_eval=64", "callbacks=minimal"]
small += ["pictures=false", "reference=null"]
code = main([*small, "hydra.run.dir=run"])
from sliceformer_lab import load_run
model = load_run("run").model
print(sys.modules[type(model).__module__].__file__)
sys.exit(code)
"""


SORT_ALONE = """
import sys, torch, shift_sort
from shift_sort import nn
assert "cpu" in shift_sort.available_backends(), shift_sort.missing_backends()
v = torch.tensor([[3.0, 1.0, 2.0, 9.0]]).mT[None].expand(1, 4, 2)
print(shift_sort.shift_sort(v, torch.tensor([0, 1]), group_size=2, lengths=torch.tensor([3])).mT.tolist())
nn.CSP(8, 4)(torch.randn(2, 4, 8)).sum().backward()
print(sorted(sys.modules.keys() & {"sliceformer_lab", "timm", "hydra", "pandas"}))
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
    return build_wheel(source, built, {"CC": "false", "CXX": "false"})


def build_wheel(source: Path, built: Path, environment: Mapping[str, str]) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(built), "."]
    subprocess.run(command, cwd=source, check=True, env=os.environ | environment, timeout=600)
    (file,) = built.glob("*.whl")
    return file


def metadata_of(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return archive.read(name).decode().splitlines()


def link_package(name: str, site: Path, seen: set[str]) -> None:
    """Links an installed package and all that it needs into another site-packages."""
    if name in seen:
        return
    seen.add(name)
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:  # an extra, or of another platform
        return
    for top in {file.parts[0] for file in found.files or () if ".." not in file.parts} - {"__pycache__"}:
        if not (site / top).exists():
            (site / top).symlink_to(Path(str(found.locate_file(top))))
    for requirement in found.requires or ():
        if "extra ==" not in requirement:
            link_package(re.match(r"[\w.-]+", requirement)[0], site, seen)


def train_and_open(folder: Path, *path: Path) -> Path:
    """Trains for an epoch in `folder`, opens the run, and returns the file that its task's class comes from."""
    done = run_python("-c", TRAIN_AND_OPEN, cwd=folder, PYTHONPATH=os.pathsep.join(map(str, path)))
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
    operator = {f"sliceformer_lab/permute/{file.name}" for file in OPERATOR.glob("shift_sort/*.py")}
    assert operator and operator <= set(names)
    assert "sliceformer_lab/py.typed" in names and any(name.endswith("paper_results.csv") for name in names)


def test_wheel_runs_beside_files_with_our_folders_names(
    wheel: Path, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    site = tmp_path_factory.mktemp("site")
    zipfile.ZipFile(wheel).extractall(site)
    assert train_and_open(folder, site).is_relative_to(site)


@pytest.mark.slow
@pytest.mark.timeout(900)  # it compiles the kernel
def test_the_operator_is_installed_and_runs_where_torch_is_alone(tmp_path: Path) -> None:
    source = shutil.copytree(
        OPERATOR, tmp_path / "source", ignore=shutil.ignore_patterns("*.so", "*.egg-info", "build", "__pycache__")
    )
    wheel = build_wheel(source, tmp_path / "wheel", {})
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, timeout=120)
    python = tmp_path / "venv" / "bin" / "python"
    (site,) = (tmp_path / "venv" / "lib").glob("*/site-packages")
    install = [python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", wheel]
    subprocess.run(install, check=True, timeout=120)
    needed = [line for line in metadata_of(wheel) if line.startswith("Requires-Dist")]
    assert [re.split(r"[ :><=]+", line)[1] for line in needed] == ["torch", "numpy"]
    for name in ("torch", "numpy"):  # after pip, which would write through the links
        link_package(name, site, set())
    done = subprocess.run([python, "-c", SORT_ALONE], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == ["[[[1.0, 3.0, 2.0, 0.0], [2.0, 3.0, 1.0, 0.0]]]", "[]"], done.stderr


@pytest.mark.slow
def test_editable_install_runs_beside_files_with_our_folders_names(folder: Path) -> None:
    assert train_and_open(folder) == ROOT / "tasks" / "image.py"


def test_above_a_clone_of_the_package_s_name_a_sentence_says_what_hides_the_package(tmp_path: Path) -> None:
    clone = tmp_path / "sliceformer_lab"
    (clone / "data").mkdir(parents=True)  # as the first download makes it: it would hide the package's own
    done = run_python("-m", "sliceformer_lab", "--help", cwd=tmp_path)
    sentence = f"sliceformer-lab: {clone} hides the installed package; start in another folder\n"
    assert (done.returncode, done.stderr) == (1, sentence)
