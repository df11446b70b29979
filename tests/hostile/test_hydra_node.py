"""Option files from strangers: the `hydra` node of a file can name code, which nothing calls."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from sliceformer_lab.__main__ import main
from sliceformer_lab.training import run as training

TOUCH = "touch it-ran"
SYSTEM = {"_target_": "os.system", "command": TOUCH}


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
    monkeypatch.setattr(training, "run", lambda *_: None)
    (tmp_path / "stranger.py").write_text("open('it-ran', 'w').close()\n")
    return tmp_path


def write_recipe(folder: Path, hydra: dict[str, Any]) -> None:
    file = folder / "conf" / "recipe" / "theirs.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("# @package _global_\n" + yaml.safe_dump({"hydra": hydra}))


SWEPT = ("a callback", "a launcher", "a sweeper", "a call in what is swept")  # what a sweep of Hydra's reads


@pytest.mark.parametrize("words", [*((name,) for name in NODES), *(("-m", name) for name in SWEPT)], ids=" ".join)
def test_nothing_that_a_file_of_options_gives_hydra_is_called(
    words: tuple[str, ...], folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    *multirun, name = words
    write_recipe(folder, NODES[name])
    main(["--config-dir", "conf", *multirun, "recipe=theirs"])
    printed = capfd.readouterr()
    assert "Traceback" not in printed.out + printed.err
    assert not (folder / "it-ran").exists() and "stranger" not in sys.modules
    assert os.environ.get("LD_PRELOAD") != "stranger.so"
