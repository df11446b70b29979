"""Option files from strangers: the `hydra` node of a file can name code that Hydra would run before a job starts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from sliceformer_lab.__main__ import main
from sliceformer_lab.training import run as training

TOUCH = "touch it-ran"
SYSTEM = {"_target_": "os.system", "command": TOUCH}
STREAM = "ext://sys.stdout"


def log(**node: object) -> dict[str, Any]:
    """A `hydra` node whose log has a handler of its own."""
    return {"job_logging": {"handlers": {"evil": node}, "root": {"handlers": ["console", "evil"]}}}


NODES: dict[str, dict[str, Any]] = {
    "a callback": {"callbacks": {"evil": SYSTEM}},
    "a callback of an installed package": {
        "callbacks": {"evil": {"_target_": "hydra.experimental.callbacks.LogJobReturnCallback"}}
    },
    "a launcher": {"launcher": {"_target_": "stranger.Launcher"}},
    "a sweeper": {"sweeper": {"_target_": "stranger.Sweeper"}},
    "a call in what is swept": {"sweeper": {"params": {"seed": SYSTEM}}},
    "a handler": log(**{"class": "stranger.Handler"}),
    "a handler found in a module": log(**{"class": "logging.os.system", "command": TOUCH}),
    "a factory": log(**{"()": "os.system", "command": TOUCH}),
    "a stream": log(**{"class": "logging.StreamHandler", "stream": "ext://stranger.stream"}),
    "a hidden stream": log(**{"class": "logging.StreamHandler", "stream": "${hydra.job.name}"}),
    "a formatter": {"job_logging": {"formatters": {"simple": {"()": "stranger.Formatter"}}}},
    "a filter": {"hydra_logging": {"filters": {"evil": {"()": "os.system", "command": TOUCH}}}},
    "Hydra's own log": {"hydra_logging": {"handlers": {"console": {"class": "stranger.Handler"}}}},
    "a variable of the environment": {"job": {"env_set": {"LD_PRELOAD": "stranger.so"}}},
    "a copied variable": {"job": {"env_copy": ["HOME"]}},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of options, next to a module that leaves a marker if it is imported; no run trains."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(training, "run", lambda config, folder: 0.5)
    (tmp_path / "stranger.py").write_text("open('it-ran', 'w').close()\n")
    return tmp_path


def write_recipe(folder: Path, hydra: dict[str, Any]) -> None:
    file = folder / "conf" / "recipe" / "theirs.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("# @package _global_\n" + yaml.safe_dump({"hydra": hydra}))


@pytest.mark.parametrize("words", [["recipe=theirs"], ["-m", "recipe=theirs", "seed=0,1"]], ids=["run", "sweep"])
@pytest.mark.parametrize("name", NODES)
def test_a_file_of_options_gives_hydra_no_code(
    name: str, words: list[str], folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_recipe(folder, NODES[name])
    assert main(["--config-dir", "conf", *words]) == 1
    printed = capfd.readouterr()
    assert printed.err.count("\n") == 1 and "hydra." in printed.err and "Traceback" not in printed.out + printed.err
    assert not (folder / "it-ran").exists() and "stranger" not in sys.modules
    assert not (folder / "outputs").exists()


def test_a_node_that_only_one_job_of_a_sweep_has_is_refused(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_recipe(folder, log(**{"class": "stranger.Handler"}))
    assert main(["--config-dir", "conf", "-m", "recipe=csp/table3_cifar10,theirs"]) == 1
    assert "hydra.job_logging.handlers.evil.class: stranger.Handler" in capfd.readouterr().err
    assert not (folder / "it-ran").exists()


def test_a_file_that_starts_a_multirun_gives_its_jobs_no_code(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    params = {"+hydra.callbacks.evil._target_": "os.getcwd"}
    write_recipe(folder, {"mode": "MULTIRUN", "sweeper": {"params": params}})
    assert main(["--config-dir", "conf", "recipe=theirs"]) == 1
    assert "hydra.callbacks.evil: a configuration gives Hydra no callbacks" in capfd.readouterr().err
    assert not (folder / "multirun").exists() and not (folder / "outputs").exists()


@pytest.mark.parametrize("words", ["+hydra.callbacks.plan._target_=os.getcwd", "task=../../theirs"])
def test_the_command_line_gives_hydra_no_code_either(
    words: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_recipe(folder, NODES["a callback"])
    assert main(["--config-dir", "conf", words]) == 1
    assert not (folder / "it-ran").exists()


@pytest.mark.parametrize(
    "words",
    [
        *(
            ["hydra/job_logging=none"],
            ["hydra/job_logging=disabled"],
            ["hydra/job_logging=stdout"],
            ["hydra.verbose=true"],
        ),
        *(
            ["hydra/hydra_logging=none"],
            ["hydra.job_logging.root.level=WARNING"],
            ["study=controls_digits", "seed=0"],
        ),
        ["hydra.sweep.dir=here", "-m", "seed=0,1"],
    ],
    ids=" ".join,
)
def test_hydras_own_options_and_our_studies_still_work(words: list[str], folder: Path) -> None:
    assert main(words) in (0, 1) and (folder / ("here" if "-m" in words else "outputs")).exists()
