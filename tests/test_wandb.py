"""An offline W&B run holds what a dashboard needs, read back from its file."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wandb
from runs import SMALL
from wandb.proto.wandb_internal_pb2 import Record

from sliceformer_lab import loggers
from sliceformer_lab.cli import main
from sliceformer_lab.record import read_summary

SECRET = "0123456789abcdef0123456789abcdef01234567"


def log_records(content: bytes) -> Iterator[bytes]:
    """The records of a LevelDB log in blocks of 32 KiB, behind W&B's own seven bytes."""
    position, record = 7, b""
    while position + 7 <= len(content):
        if (left := 32768 - position % 32768) < 7:
            position += left
            continue
        length, kind = struct.unpack_from("<HB", content, position + 4)
        record += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


class Offline:
    """One offline run, read from its .wandb file."""

    def __init__(self, file: Path) -> None:
        self.file, self.folder = file, file.parents[2]
        self.run: Any = None
        self.exit_code: int | None = None
        self.history: list[dict[str, Any]] = []
        self.summary: dict[str, Any] = {}
        self.metrics: dict[str, Any] = {}
        for data in log_records(file.read_bytes()):
            self._take(Record.FromString(data))

    def _take(self, record: Any) -> None:
        match record.WhichOneof("record_type"):
            case "run":
                self.run = record.run
            case "history":
                self.history.append(_values(record.history.item))
            case "summary":
                self.summary |= _values(record.summary.update)
            case "metric":
                self.metrics[record.metric.name or record.metric.glob_name] = record.metric
            case "exit":
                self.exit_code = record.exit.exit_code


def _values(items: Any) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> list[Offline]:
    """Two jobs of one multirun, the second of which fails; a key in the environment, no network."""
    outputs = tmp_path_factory.mktemp("outputs")
    options = ("logger=wandb", "callbacks=default", "tags=[trial]", "optim.epochs=3", "trainer.log_every_n_steps=1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_API_KEY", SECRET)
        patch.setattr(loggers, "_server_answers", lambda: False)
        main(["-m", *SMALL, *options, "optim.lr=0.002,1e30", f"paths.outputs={outputs}"])
    return [Offline(file) for file in sorted(outputs.rglob("run-*.wandb"))]


def test_each_job_has_a_closed_run_of_its_own(jobs: list[Offline]) -> None:
    assert wandb.run is None
    assert [job.exit_code for job in jobs] == [0, 1]
    assert len({job.run.run_id for job in jobs}) == 2
    assert [read_summary(job.folder)["status"] for job in jobs] == ["ok", "diverged"]


def test_run_is_named_grouped_and_tagged(jobs: list[Offline]) -> None:
    for job in jobs:
        assert job.run.display_name == f"digits/mha/{job.folder.name}"
        assert job.run.run_group == job.folder.parent.name and list(job.run.tags) == ["digits", "mha", "trial"]


def test_configuration_is_whole_and_without_secrets(jobs: list[Offline]) -> None:
    config = _values(jobs[0].run.config.update)
    assert config["optim"]["epochs"] == 3 and config["attention"] == {
        "_target_": "sliceformer_lab.attention.mha.MHA",
        "qk_norm": False,
        "gate": False,
        "times_tokens": False,
    }
    for job in jobs:
        for file in (job.file, *job.folder.rglob("*.log"), *job.folder.rglob("*.yaml"), *job.folder.rglob("*.json")):
            assert SECRET.encode() not in file.read_bytes()


def test_history_has_every_metric_over_the_step(jobs: list[Offline]) -> None:
    steps = [row["trainer/global_step"] for row in jobs[0].history if "train/batch_loss" in row]
    assert steps == list(range(6))
    assert len([row for row in jobs[0].history if "val/accuracy" in row]) == 3
    assert jobs[0].metrics["*"].step_metric == "trainer/global_step"
    assert jobs[0].metrics["val/accuracy"].summary.max


def test_pictures_and_figures_are_there(jobs: list[Offline]) -> None:
    pictures = {key for row in jobs[0].history for key in row if key.split("/")[0] in ("curves", "spectrum")}
    assert {"curves", "spectrum"} <= {key.split("/")[0] for key in pictures}
    images = jobs[0].file.parent / "files" / "media" / "images"
    assert {file.name.split("_")[0] for file in images.glob("*.png")} == {"curves", "spectrum"}
    recorded = read_summary(jobs[0].folder)
    assert jobs[0].summary["test/accuracy"] == recorded["metrics"]["test/accuracy"]
    assert jobs[0].summary["parameters"] == recorded["parameters"] and jobs[0].summary["status"] == "ok"


@pytest.mark.parametrize(("key", "answers", "offline"), [(True, True, False), (True, False, True), (False, True, True)])
def test_offline_by_itself_without_key_or_network(
    key: bool, answers: bool, offline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loggers, "_has_key", lambda: key)
    monkeypatch.setattr(loggers, "_server_answers", lambda: answers)
    assert loggers.must_be_offline() is offline


def test_key_is_found_in_environment_and_netrc_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not loggers._has_key()
    (tmp_path / ".netrc").write_text(f"machine api.wandb.ai login user password {SECRET}\n")
    (tmp_path / ".netrc").chmod(0o600)
    assert loggers._has_key()
    (tmp_path / ".netrc").unlink()
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    assert loggers._has_key()


def test_upload_command_is_printed(jobs: list[Offline]) -> None:
    for job in jobs:
        log = (job.folder / "sliceformer_lab.log").read_text()
        assert f"upload to W&B with: wandb sync {job.file.parent}" in log
