"""W&B in trouble: the run goes on and is recorded, and what the server lacks is uploaded later by one command."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import wandb
from support.plans import run
from support.run_folders import read_summary
from support.runs import SMALL, last_of_each, small_config, stopped_at
from support.wandb_server import KEY, StoredRun, WandbServer, upload, wandb_server

from sliceformer_lab.__main__ import main
from sliceformer_lab.errors import ConfigError
from sliceformer_lab.runs.sweep import SWEEP_FILE
from sliceformer_lab.training.context import RunContext
from sliceformer_lab.training.results import wandb_runs
from sliceformer_lab.training.results.metrics_file import MetricsFile

ROWS = 40


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WandbServer]:
    """A server for which the client waits a short time."""
    monkeypatch.setattr(wandb_runs, "START_SECONDS", 5.0)
    monkeypatch.setattr(wandb_runs, "UPLOAD_SECONDS", 2.0)
    with wandb_server() as one:
        yield one


def start(folder: Path) -> Any:
    """The W&B run of a run folder."""
    logger = {"project": "p", "entity": None, "offline": None, "group": None}
    config = {"logger": {"alerts": False}}
    return wandb_runs.open_run(folder, "one", logger, notes="", job_type="train", group="g", tags=[], config=config)


def history_of(folder: Path) -> wandb_runs.WandbHistory:
    """The history of the W&B run of a run folder that monitors nothing."""
    context = RunContext(folder=folder, seed=0, monitor=None, monitor_mode="max")
    return wandb_runs.WandbHistory(start(folder), context)


def log_rows(
    folder: Path, at_half: Callable[[], object] = lambda: None, status: str = "ok", first_step: int = 0
) -> None:
    """Logs rows from a step on, as a run does, and calls `at_half` in the middle."""
    file = MetricsFile(folder)
    history = history_of(folder)
    for step in range(first_step, first_step + ROWS):
        if step == first_step + ROWS // 2:
            at_half()
        for logger in (file, history):
            logger.log_metrics({"train/loss": 1 / (step + 1)}, step)
    file.save()
    wandb_runs.close_wandb(folder, status, "")


def sync(folder: Path) -> None:
    """Uploads what waits in a folder; then nothing waits."""
    wandb.teardown()
    upload(folder)
    assert wandb_runs.sync_command(folder) is None


def steps_of(run: StoredRun) -> list[int]:
    return [row["_step"] for row in run.history]


@pytest.mark.parametrize("status", [0, pytest.param(404, marks=pytest.mark.slow)])
def test_what_a_server_lost_in_the_middle_is_uploaded_by_the_command_that_is_printed(
    status: int, server: WandbServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log_rows(tmp_path, lambda: setattr(server, "fails", lambda place: status))
    assert "W&B has not received the whole run" in caplog.text
    server.fails = lambda place: None
    sync(tmp_path)
    (one,) = server.runs.values()
    assert sorted({*steps_of(one)}) == list(range(ROWS)) and one.exit_code == 0  # rows that arrived are sent twice


def test_a_server_with_an_error_at_the_start_makes_the_run_offline_and_later_starts_lose_nothing(
    server: WandbServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.fails = lambda place: 500
    log_rows(tmp_path)
    assert caplog.text.count("the run goes on without it") == 1 and not server.runs
    server.fails = lambda place: None
    history_of(tmp_path).log_metrics({"train/loss": 0.0}, ROWS)
    wandb_runs.close_wandb(tmp_path, "ok", "")
    assert not server.runs, "what waits stays offline"
    sync(tmp_path)
    (one,) = server.runs.values()
    assert steps_of(one) == list(range(ROWS + 1))


def test_a_run_that_goes_on_from_a_checkpoint_online_and_then_offline_sends_each_step_once(
    server: WandbServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log_rows(tmp_path)
    log_rows(tmp_path, first_step=ROWS // 2)  # the last rows are made again
    monkeypatch.setenv("WANDB_MODE", "offline")
    log_rows(tmp_path, first_step=ROWS // 2 + ROWS)
    monkeypatch.delenv("WANDB_MODE")
    sync(tmp_path)
    (one,) = server.runs.values()
    steps = list(range(ROWS // 2 + 2 * ROWS))
    assert steps_of(one) == steps == [row["trainer/global_step"] for row in one.history]


def test_a_wrong_key_makes_the_run_offline(
    server: WandbServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.fails = lambda place: 401 if place == "UpsertBucket" else None
    assert start(tmp_path).settings._offline
    wandb_runs.close_wandb(tmp_path, "ok", "")
    assert caplog.text.count("the run goes on without it") == 1 and "refused with 401" in caplog.text


def test_a_name_or_tag_that_a_server_would_refuse_keeps_its_ends(server: WandbServer, tmp_path: Path) -> None:
    logger = {"project": "p", "entity": None, "offline": None, "group": None}
    given: dict[str, Any] = {"notes": "", "job_type": "train", "group": "g", "config": {"logger": {"alerts": False}}}
    name = f"comparison of {'csp, mha, ' * 20}identity (digits)"
    wandb_runs.open_run(tmp_path, name, logger, tags=[None, "t" * 100, "digits"], **given)
    wandb_runs.close_wandb(tmp_path, "failed", "")
    (run,) = server.runs.values()
    shown = run.facts["displayName"]
    assert len(shown) == 128 and shown.startswith("comparison of csp") and shown.endswith("identity (digits)")
    assert [len(tag) for tag in run.facts["tags"]] == [64, 6]


def test_a_run_that_the_caller_has_open_stays_the_callers(server: WandbServer, tmp_path: Path) -> None:
    mine = wandb.init(project="mine", dir=str(tmp_path), settings=wandb.Settings(silent=True))
    wandb_runs.close_wandb(tmp_path / "without_logger", "ok", "")
    (tmp_path / "run").mkdir()
    log_rows(tmp_path / "run")
    assert wandb.run is mine
    mine.log({"mine": 1})
    mine.finish()
    (ours,) = [run for run in server.runs.values() if run.id != mine.id]
    assert steps_of(ours) == list(range(ROWS)) and ours.summary["status"] == "ok"
    assert [row["mine"] for row in server.runs[mine.id].history] == [1] and "status" not in server.runs[mine.id].summary


def test_a_job_of_a_sweep_is_refused_in_a_trial_of_an_agent_which_is_one_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WANDB_SWEEP_ID", "sweep1")
    monkeypatch.setenv("WANDB_RUN_ID", "trial1")
    (tmp_path / SWEEP_FILE).touch()
    with pytest.raises(ConfigError, match="a trial of a W&B agent is one run, and this is a job of a sweep; give"):
        start(tmp_path / "job")


def test_nothing_is_sent_if_the_environment_forbids_it(
    server: WandbServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for mode in wandb_runs.FORBIDDING_MODES:
        monkeypatch.setenv("WANDB_MODE", mode)
        assert wandb_runs.must_be_offline()
    log_rows(tmp_path)
    assert not server.runs
    monkeypatch.delenv("WANDB_MODE")
    sync(tmp_path)
    (run,) = server.runs.values()
    assert steps_of(run) == list(range(ROWS))


def test_a_server_that_says_nothing_and_a_dead_proxy_make_the_run_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(wandb_runs, "ANSWER_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{mute.getsockname()[1]}")
        assert wandb_runs.must_be_offline()
    monkeypatch.delenv("WANDB_BASE_URL")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    assert wandb_runs.must_be_offline()


def test_a_training_ends_as_usual_when_the_server_goes_away_in_the_middle(server: WandbServer, tmp_path: Path) -> None:
    server.fails = lambda place: 500 if any("file_stream" in one for one in server.requests) else None
    words = last_of_each([*SMALL, "logger=wandb", "trainer.log_every_n_steps=1", f"hydra.run.dir={tmp_path / 'run'}"])
    assert main(words) == 0 and read_summary(tmp_path / "run")["status"] == "ok"
    said = (tmp_path / "run" / "sliceformer_lab.log").read_text()
    assert f"upload to W&B with: {wandb_runs.sync_command(tmp_path / 'run')}" in said
    server.fails = lambda place: None
    sync(tmp_path / "run")
    (one,) = server.runs.values()
    assert one.exit_code == 0 and one.summary["test/accuracy"] > 0
    assert [row["trainer/global_step"] for row in one.history if "train/batch_loss" in row] == list(range(4))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_of_wandb_does_not_end_a_run(server: WandbServer, tmp_path: Path) -> None:
    disk = tmp_path / "wandb"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", disk], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        log_rows(tmp_path)
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
    assert len(wandb_runs.read_metrics(tmp_path)) == ROWS
    assert wandb.run is None


def test_an_alert_says_that_a_run_diverged_if_that_is_asked_for(server: WandbServer, tmp_path: Path) -> None:
    options = [*SMALL, "logger=wandb", "logger.alerts=true", "optim.lr=1e30", "encoder.depth=1"]
    main(last_of_each([*options, f"hydra.run.dir={tmp_path / 'run'}"]))
    (alert,) = server.alerts
    assert alert["title"] == "mha, seed 0 (digits) diverged" and "loss became nan" in alert["text"]


def test_a_stopped_run_has_its_best_score_and_the_rest_of_it_uploads_no_artifacts_unasked(
    server: WandbServer, tmp_path: Path
) -> None:
    config = small_config("logger=wandb", "optim.epochs=3", "optim.lr=0.01", "data.limit_train=null")
    with stopped_at(2):
        run(config, tmp_path)
    (one,) = server.runs.values()
    scores = [row["val/accuracy"] for row in one.history if "val/accuracy" in row]
    assert len(scores) == 2 and one.summary["val/accuracy"] == max(scores)
    run(config, tmp_path)
    assert one.exit_code == 0 and not server.artifacts
