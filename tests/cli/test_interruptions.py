"""A stop signal at any place ends a program as interrupted, and the same command does what was left."""

from __future__ import annotations

import pickle
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.endings import train_in_turn
from support.injected_signals import Place, called_places, in_process, signalled_at
from support.plans import run
from support.runs import small_config

from sliceformer_lab.__main__ import main
from sliceformer_lab.cli.command import Command
from sliceformer_lab.cli.main import run_program
from sliceformer_lab.data.pickles import load_arrays
from sliceformer_lab.errors import Interrupted
from sliceformer_lab.runs.folder import resumable_checkpoint
from sliceformer_lab.runs.job_state import state_of
from sliceformer_lab.training.processes.signals import signals_as_errors

STOPPED = 143  # 128 + SIGTERM
FEW, MANY = 2, 60  # places at equal distances: composing two jobs calls 1,900 functions, and is done twice a place
SWEEP = ("-m", "encoder=tiny", "attention=mha", "seed=0,1", "launcher=serial", "hydra.sweep.dir=sweep")
at_many = pytest.mark.parametrize(
    "sampled", [pytest.param(FEW, id="few"), pytest.param(MANY, id="many", marks=pytest.mark.slow)]
)
at_all = pytest.mark.parametrize(
    "sampled", [pytest.param(FEW, id="few"), pytest.param(None, id="all", marks=pytest.mark.slow)]
)


def sample(places: list[Place], number: int | None) -> list[Place]:
    """All places, or some of them at equal distances."""
    return places if number is None else places[:: max(1, len(places) // number)]


def ends_as_interrupted(action: Callable[[], object], sampled: int | None) -> None:
    """Checks the exit code of a program that does nothing but `action`."""

    def program() -> int:
        try:
            with signals_as_errors():
                action()
        except Interrupted as stop:
            return stop.exit_code
        return 0

    places = sample(called_places(program), sampled)
    codes = {place: signalled_at(place, program) for place in places}
    assert {place: code for place, (sent, code) in codes.items() if code != (STOPPED if sent else 0)} == {}


def goes_on_after_a_stop(
    program: Callable[[], int], folder: Path, after_stop: Callable[[], None], sampled: int | None
) -> None:
    """Stops a program that writes a folder at several places, and checks that it then does what was left."""
    assert in_process(program) == 0
    shutil.rmtree(folder)
    wrong = {}
    for place in sample(called_places(program), sampled):
        shutil.rmtree(folder, ignore_errors=True)
        sent, code = signalled_at(place, program)
        after_stop()
        again = in_process(program)
        if (code, again) != (STOPPED if sent else 0, 0):
            wrong[place] = code, again
    assert wrong == {}


@pytest.mark.timeout(3600)
@at_many
def test_a_signal_while_a_job_is_composed_interrupts_the_sweep_whose_command_then_does_every_job(
    sampled: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    train_in_turn(monkeypatch, *[None] * 4)

    def check() -> None:
        states = [state_of(folder) for folder in Path("sweep").glob("*-*")]
        assert {state.status for state in states if state.is_final} <= {"ok"}, states

    goes_on_after_a_stop(partial(main, SWEEP), Path("sweep"), check, sampled)


@at_all
def test_a_signal_while_a_checkpoint_is_read_is_no_damaged_checkpoint(
    sampled: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("run")
    run(small_config("optim.epochs=1", "data.limit_train=32"), folder)
    ends_as_interrupted(partial(resumable_checkpoint, folder), sampled)


@at_all
def test_a_signal_while_a_pickle_is_opened_is_no_damaged_pickle(sampled: int | None, tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(pickle.dumps({"data": np.arange(6).reshape(2, 3), "labels": [1, 2]}))
    ends_as_interrupted(partial(load_arrays, file), sampled)


@pytest.mark.timeout(3600)
@at_many
def test_a_stopped_export_leaves_nothing_and_can_be_started_again(
    sampled: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(small_config("optim.epochs=1", "data.limit_train=32"), tmp_path / "run")

    def clear() -> None:
        if Path("exported", "README.md").is_file():  # it was complete
            shutil.rmtree("exported")

    goes_on_after_a_stop(partial(main, ("export", "resume=run", "output=exported")), Path("exported"), clear, sampled)


@pytest.mark.parametrize(("rank", "printed"), [("0", "sliceformer-lab: stopped by SIGTERM\n"), ("1", "")])
def test_only_the_first_process_of_a_run_says_that_it_was_stopped(
    rank: str, printed: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def stop() -> Command:
        raise Interrupted("stopped by SIGTERM", signal.SIGTERM)

    monkeypatch.setenv("RANK", rank)
    train = Command(word="", summary="", examples={}, job=lambda *_: None)
    assert run_program(train, {"stop": stop}, ["stop"]) == STOPPED
    assert capfd.readouterr().err == printed
