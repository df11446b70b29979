"""The package in examples/, installed: its options are known without a word, and everything works with them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.other_process import run_python

from sliceformer_lab.cli.arguments import open_arguments
from sliceformer_lab.cli.run_sweep import planned_sweep
from sliceformer_lab.cli.train import train_command
from sliceformer_lab.config.compose import CONF_DIR, option_names
from sliceformer_lab.config.plugins import plugins
from sliceformer_lab.config.schema import ConfigError

EXAMPLES = CONF_DIR.parent / "examples"
STEPS = """
import sys
from pathlib import Path
from sliceformer_lab import build_attention, load_run
from sliceformer_lab.__main__ import main

small = ["task=waves", "data.num_examples=300", "optim.epochs=1", "callbacks=minimal", "hydra.run.dir=outputs/run"]
assert main([*small, "attention=neighbours"]) == 0
assert main(["resume=outputs/run"]) == 0
assert main(["mode=eval", "resume=outputs/run"]) == 0
run = load_run("outputs/run")
assert type(run.model).__module__ == "lab_example.frequency" and run.predictions["test_logits"].shape == (60, 1)
assert main(["report", "outputs", "figures=false"]) == 0
assert "neighbours" in Path("outputs/report/report.md").read_text()
assert main(["check", "attention=neighbours", "attention.radius=3"]) == 0
assert build_attention("neighbours", dim=8, num_heads=2).radius == 2
assert main(["--help"]) == 0
print(sys.modules["lab_example"].__file__)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of installed packages with the example."""
    source, site = tmp_path_factory.mktemp("source") / "examples", tmp_path_factory.mktemp("site")
    shutil.copytree(EXAMPLES, source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--target", str(site), str(source)], check=True, timeout=120)
    return site


@pytest.mark.slow
def test_installed_example_trains_resumes_opens_reports_and_keeps_the_contract(site: Path, tmp_path: Path) -> None:
    done = run_python("-c", STEPS, cwd=tmp_path, PYTHONPATH=str(site))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert Path(lines[-1]).is_relative_to(site)
    assert [line for line in lines if line.split()[:1] == ["neighbours"]], "--help lists it"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Installs a plugin whose entry point names this package, in place of the one before."""
    info = tmp_path / "theirs-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    monkeypatch.syspath_prepend(tmp_path)

    def call(package: str) -> None:
        (info / "entry_points.txt").write_text(f"[sliceformer_lab.plugins]\nmine = {package}\n")
        plugins.cache_clear()

    yield call
    monkeypatch.undo()
    plugins.cache_clear()


def test_a_plugin_that_is_not_one_is_named(tmp_path: Path, install: Callable[[str], None]) -> None:
    (tmp_path / "their_code").mkdir()
    for package, reason in {"their_code": "has no folder conf", "no_code": "is no package", "a b": "is no"}.items():
        install(package)
        with pytest.raises(ConfigError, match=f'the installed plugin mine = "{package}" {reason}'):
            option_names("attention")


def test_a_sweep_with_edited_code_or_options_of_a_plugin_is_another_sweep(
    tmp_path: Path, install: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "their_code"
    option, module = code / "conf" / "attention" / "theirs.yaml", code / "__init__.py"
    option.parent.mkdir(parents=True)
    option.write_text("_target_: their_code.Theirs\n")
    module.write_text("one = 1\n")
    linked = tmp_path / "elsewhere" / "kernel.py"
    linked.parent.mkdir()
    linked.write_text("two = 2\n")
    (code / "kernels").symlink_to(linked.parent)
    monkeypatch.chdir(tmp_path)
    install("their_code")
    with open_arguments(train_command(), ["-m", "attention=theirs", "seed=0,1"]) as arguments:
        folders = []
        for file in (None, option, module, linked):
            if file is not None:
                file.write_text(file.read_text() + "# edited\n")
            folders.append(plan.folder if (plan := planned_sweep(arguments)) else None)
    assert None not in folders and len({*folders}) == 4
