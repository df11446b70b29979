"""What holds in every test."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Iterator
from copy import deepcopy
from io import TextIOBase
from pathlib import Path
from typing import IO, Any

import pytest
import torch
from omegaconf import DictConfig, ListConfig, OmegaConf
from support.devices import NO_GPU

from sliceformer_lab.__main__ import main
from sliceformer_lab.runs.commit import git_commit
from sliceformer_lab.runs.files import write_json
from sliceformer_lab.sweeps import estimate


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option with which a first run on a GPU leaves its results."""
    parser.addoption("--json", type=Path, metavar="FILE", help="write numbers and names of failed tests to FILE")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Writes the file of --json."""
    file: Path | None = config.getoption("--json")
    if file is None:
        return
    found = terminalreporter.stats
    content = {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else NO_GPU,
        "commit": git_commit(),
        "torch": torch.__version__,
        "numbers": {kind: len(found.get(kind, [])) for kind in ("passed", "failed", "error", "skipped")},
        "seconds": round(
            sum(report.duration for reports in found.values() for report in reports if hasattr(report, "duration")), 1
        ),
        "failed": {report.nodeid: report.longreprtext.splitlines()[-1:] for report in found.get("failed", [])},
        "errors": [report.nodeid for report in found.get("error", [])],
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, content)
    terminalreporter.write_line(f"wrote {file}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips the tests marked gpu where there is none, before any fixture is built."""
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason=NO_GPU))


@pytest.fixture(scope="session", autouse=True)
def signals_that_a_shell_ignored() -> None:
    """Tests send SIGINT and SIGHUP; processes that a shell starts in the background or by nohup ignore one of them."""
    for number, default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, default)


@pytest.fixture(scope="session", autouse=True)
def objects_collected_at_the_end() -> Iterator[None]:
    """What `imported_objects_are_not_collected` left out."""
    yield
    gc.unfreeze()


@pytest.fixture(scope="module", autouse=True)
def imported_objects_are_not_collected(objects_collected_at_the_end: None) -> None:
    """The garbage collector skips what exists before the tests of a file: a run collects, which took half a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def own_data_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs of tests keep caches, and the ledger of scored test sets, away from those of the user of this clone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLICEFORMER_DATA", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(scope="session", autouse=True)
def texts_of_options_parsed_once() -> Iterator[None]:
    """Hydra parses some sixty files for every configuration; parsed once, composing takes two thirds of the time."""
    load, parsed = OmegaConf.load, dict[str, DictConfig | ListConfig]()

    def load_once(file: str | Path | IO[Any]) -> DictConfig | ListConfig:
        if not isinstance(file, TextIOBase):
            return load(file)
        text = file.read()
        if text not in parsed:
            file.seek(0)  # an error names the file
            parsed[text] = load(file)
        return deepcopy(parsed[text])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OmegaConf, "load", staticmethod(load_once))
        yield


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """Every test draws the same random numbers, whichever ran before it."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def no_measured_steps(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A sweep measures no steps before it starts, which takes ten seconds; tests of the estimate do."""
    if request.path.name != "test_estimate.py":
        monkeypatch.setattr(estimate, "MIN_MEASURED_JOBS", 10**6)


@pytest.fixture
def refused(capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Gives the program a command line that cannot work; returns the one sentence with which it ends."""

    def call(*words: str) -> str:
        capfd.readouterr()
        assert main(words) == 1
        out, err = capfd.readouterr()
        assert "Traceback" not in out + err
        assert err.count("\n") == 1 and err.startswith("sliceformer-lab: "), err
        return err

    return call
