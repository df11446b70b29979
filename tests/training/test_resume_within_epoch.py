"""A run that is stopped at any step goes on from there, and equals an uninterrupted run bit by bit."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from pytorch_lightning import LightningModule, Trainer
from support import official_files, official_graphs, official_points
from support.plans import run
from support.run_folders import read_summary
from support.runs import assert_equal_runs, run_with_log, small_config, stopped_at

from sliceformer_lab.callbacks.guard import Guard
from sliceformer_lab.errors import Interrupted, RunFolderError
from sliceformer_lab.runs.folder import read_checkpoint
from sliceformer_lab.sweeps.fork_server import fork_server

EVERY_STEP = "callbacks.checkpoints.every_minutes=0"
NOISE = ("encoder.dropout=0.1", "encoder.embed_dropout=0.1", "encoder.drop_path=0.2", "trainer.log_every_n_steps=1")
MIXED = ("task.mixup=0.4", "data.batch_size=16")
STEPS = ("optim.epochs=null", "optim.steps=12", "optim.val_every=5", "data.batch_size=16", *NOISE)


class Small(NamedTuple):
    """What writes a task's files into a folder, and the options of a short run on them."""

    write: Callable[[Path], object]
    options: tuple[str, ...]


RUNS = {
    "pictures": Small(
        official_files.cifar10,
        ("task=cifar10", "data.verify=false", "data.num_workers=2", "data.batch_size=16", "task.mixup=0.4"),
    ),
    "texts of similar lengths": Small(
        official_files.texts,
        ("task=text_csv", "data.file=${data.root}/texts.csv", "data.bucket=true", "data.batch_size=8"),
    ),
    "molecules": Small(
        official_graphs.molecules,
        ("task=molecule_csv", "data.file=${data.root}/molecules.csv", "data.processes=1", "data.batch_size=8"),
    ),
    "clouds": Small(
        official_points.point_folder,
        ("task=point_folder", "data.num_points=16", "data.processes=1", "data.batch_size=4"),
    ),
}


def config_of(name: str, root: Path, *more: str) -> dict[str, Any]:
    """The configuration of a short run on small files of a kind, written at the first call."""
    small, files = RUNS[name], root / name.split()[0]
    if not files.exists():
        small.write(files)
    places = (f"data.root={files}", f"paths.data={root / 'cache'}", "reference=null", "data.limit_train=64")
    return small_config("encoder=tiny", *small.options, *places, "optim=adam_cosine", "optim.epochs=2", *NOISE, *more)


def stopped_and_resumed(config: dict[str, Any], folder: Path, epoch: int, batch: int) -> dict[str, Any]:
    """The summary of a run that saved every step, was stopped at the start of a batch, and went on."""
    every_step = config | {
        "callbacks": config["callbacks"] | {"checkpoints": config["callbacks"]["checkpoints"] | {"every_minutes": 0}}
    }
    with stopped_at(epoch, batch):
        run(every_step, folder)
    run(every_step, folder)
    return read_summary(folder)


@pytest.mark.parametrize("name", RUNS)
def test_run_stopped_within_an_epoch_equals_an_uninterrupted_one(name: str, tmp_path: Path) -> None:
    config = config_of(name, tmp_path)
    run(config, tmp_path / "whole")
    summary = stopped_and_resumed(config, tmp_path / "stopped", 1, 2)
    assert_equal_runs(tmp_path / "whole", tmp_path / "stopped")
    first, second = summary["starts"]
    assert first["status"] == "failed" and first["to_step"] == second["from_step"] > 0
    assert second["status"] == "ok"


@pytest.mark.parametrize(
    ("options", "batch", "saved"),
    [
        pytest.param(  # 8 batches an epoch: the third one is not a whole step
            ("optim.accumulate=2", "data.batch_size=16"), 3, 5, id="accumulation", marks=pytest.mark.slow
        ),
        pytest.param(STEPS, 4, 9, id="second stretch of five steps", marks=pytest.mark.slow),
        pytest.param((*STEPS, "optim.accumulate=2"), 4, 7, id="steps and accumulation"),
        pytest.param(MIXED, 1, 9, id="first batch of an epoch"),
    ],
)
def test_place_in_an_epoch_is_a_whole_step(
    options: tuple[str, ...], batch: int, saved: int, uninterrupted: Callable[..., Path], tmp_path: Path
) -> None:
    summary = stopped_and_resumed(small_config(*NOISE, *options), tmp_path, 1, batch)
    assert summary["starts"][1]["from_step"] == saved
    assert_equal_runs(uninterrupted(*NOISE, *options), tmp_path)


def test_signal_saves_the_place_and_the_run_goes_on_from_it(
    uninterrupted: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config(*NOISE, *MIXED)
    receive = Guard.on_before_backward

    def signalled(self: Guard, trainer: Trainer, module: LightningModule, loss: Any) -> None:
        if trainer.global_step == 10:
            os.kill(os.getpid(), signal.SIGTERM)
        receive(self, trainer, module, loss)

    with monkeypatch.context() as patch:
        patch.setattr(Guard, "on_before_backward", signalled)
        with pytest.raises(Interrupted, match="in epoch 2, step 11; continue with resume="):
            run(config, tmp_path)
    assert read_checkpoint(tmp_path / "checkpoints" / "last.ckpt")["global_step"] == 11
    run(config, tmp_path)
    assert_equal_runs(uninterrupted(*NOISE, *MIXED), tmp_path)


def test_another_number_of_processes_is_refused(tmp_path: Path) -> None:
    with stopped_at(1):
        run(small_config(), tmp_path)
    last = tmp_path / "checkpoints" / "last.ckpt"
    content = read_checkpoint(last)
    torch.save(content | {"generators": content["generators"] * 2}, last)
    with pytest.raises(RunFolderError, match="2 processes trained this run and not 1"):
        run(small_config(), tmp_path)


KILLS = int(os.environ.get("KILLS", "30"))  # of runs in random moments; 100 take two minutes


@pytest.mark.slow
def test_kills_in_random_moments_change_nothing(tmp_path: Path) -> None:
    config = small_config(*NOISE, EVERY_STEP, "data.batch_size=16", "reference=null", "task.mixup=0.4")
    server = fork_server(["pandas"])  # a process that has computed nothing, whatever tests ran before in this one
    seconds = 0.0
    for name in ("whole", "timed"):  # the first one waits for the server's imports
        process = server.Process(target=run_with_log, args=(config, tmp_path / name, tmp_path / f"{name}.log"))
        started = time.monotonic()
        process.start()
        process.join()
        seconds = time.monotonic() - started
    generator, killed, finished = random.Random(0), 0, 0
    while killed < KILLS:
        folder, log = tmp_path / f"run {finished}", tmp_path / f"run {finished}.log"
        process = server.Process(target=run_with_log, args=(config, folder, log))
        process.start()
        time.sleep(generator.uniform(0.05, 1.1) * seconds)  # some come too late, so that runs end under load too
        process.kill()
        process.join()
        if process.exitcode == -signal.SIGKILL:
            killed += 1
            continue
        assert process.exitcode == 0, log.read_text(encoding="utf-8")[-2000:]
        assert_equal_runs(tmp_path / "whole", folder, history=False)
        assert read_summary(folder)["status"] == "ok"
        finished += 1
    assert finished >= KILLS // 30, "the kills came too early to let a run end"
