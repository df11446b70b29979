"""The queue of a sweep's folders: what is left to do, and that nothing is done twice."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.fake_jobs import run_fake, start_elsewhere, starts_of, statuses, sweep_of
from support.run_folders import write_run

from sliceformer_lab.errors import DataError, LabError
from sliceformer_lab.runs.files import digest_of
from sliceformer_lab.runs.folder import lock_folder
from sliceformer_lab.runs.job_state import JOB, allow_retry, claim_job, state_of
from sliceformer_lab.runs.sources import check_sources, sources_of_words
from sliceformer_lab.runs.sweep import Sweep, read_sweep, write_sweep
from sliceformer_lab.sweeps.queue import CANCELLED, Queue
from sliceformer_lab.sweeps.serial_jobs import Serial

KINDS = ("end=ok", "end=failed", "end=diverged", "end=ok")


def run_killed(sweep: Sweep, number: int) -> None:
    """Runs a job in another process, which kills itself."""
    assert start_elsewhere(sweep, f"Queue(sweep, run_fake).work(sweep.jobs[{number}])").wait() == -9


def test_final_jobs_are_left_alone_and_stopped_ones_go_on(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path / "sweep", *KINDS, "end=killed")
    run_killed(sweep, 4)
    assert statuses(sweep) == ["planned"] * 4 + ["killed"]
    assert Serial().run(Queue(sweep, run_fake))
    assert statuses(sweep) == ["ok", "failed", "diverged", "ok", "ok"]
    assert [line.split()[1] for line in starts_of(sweep.place(sweep.jobs[4]))] == ["new", "resumed"]
    assert Queue(read_sweep(sweep.folder), run_fake).take() is None
    assert Serial().run(Queue(read_sweep(sweep.folder), run_fake))
    assert [len(starts_of(sweep.place(job))) for job in sweep.jobs] == [1, 1, 1, 1, 2]


def test_a_failed_job_runs_again_when_it_is_asked_to(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path / "sweep", "end=failed")
    place = sweep.place(sweep.jobs[0])
    Serial().run(Queue(sweep, run_fake))
    assert state_of(place).error == "it failed"
    allow_retry(place)
    assert state_of(place).status == "planned"
    Serial().run(Queue(sweep, run_fake))
    state = state_of(place)
    assert (state.status, state.value, state.error) == ("ok", 0.5, None) and state.record is not None
    assert state.record["attempts"] == 2


def test_a_job_that_another_process_holds_is_not_taken_and_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = sweep_of(tmp_path / "sweep", "end=ok", "end=ok")
    queue = Queue(sweep, run_fake)
    with lock_folder(sweep.place(sweep.jobs[0])):
        assert queue.take() == sweep.jobs[1] and queue.take() is None
        monkeypatch.setattr("time.sleep", lambda _: None)
        assert queue.wait_for_others() and queue.take() is None
        _, errors = start_elsewhere(sweep, "Queue(sweep, run_fake).work(sweep.jobs[0])").communicate()
        assert "held by another live process" in errors
    assert queue.wait_for_others() and queue.take() == sweep.jobs[0]
    assert not queue.wait_for_others()


def test_a_job_that_another_process_takes_first_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    sweep = sweep_of(tmp_path / "sweep", "end=ok")
    queue = Queue(sweep, run_fake)
    job = queue.take()
    with lock_folder(sweep.place(job)):
        queue.note_end(job)
        assert queue.wait_for_others() and queue.take() is None
    assert queue.wait_for_others() and queue.take() == job


def test_a_job_that_ended_elsewhere_since_it_was_taken_is_not_run_again(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path / "sweep", "end=ok")
    first, second = Queue(sweep, run_fake), Queue(sweep, run_fake)
    job = first.take()
    assert second.take() == job
    first.work(job)
    second.work(job)
    assert len(starts_of(sweep.place(job))) == 1


def test_data_that_one_job_cannot_read_is_not_tried_again(tmp_path: Path) -> None:
    lines = ("data.root=a seed=0 end=data", "data.root=a seed=1 end=ok", "data.root=b seed=0 end=ok")
    sweep = sweep_of(tmp_path / "sweep", *lines)
    Serial().run(Queue(sweep, run_fake))
    assert statuses(sweep) == ["failed", "failed", "ok"]
    refused = state_of(sweep.place(sweep.jobs[1]))
    assert refused.error == "not tried again after an earlier job of this sweep: it data"
    assert starts_of(sweep.place(sweep.jobs[1])) == []


def test_words_that_cannot_change_a_result_reach_a_resumed_job(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path / "sweep", "end=killed seed=3 trainer.benchmark=true allow_targets=[a]")
    run_killed(sweep, 0)
    given: list[str] = []
    Serial().run(Queue(sweep, given.extend))
    folder = sweep.place(sweep.jobs[0])
    assert given == [f"resume='{folder}'", "trainer.benchmark=true", "allow_targets=[a]"]


def test_a_cancelled_sweep_is_only_cancelled_for_those_that_had_begun(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path / "sweep", "end=ok")
    before = Queue(sweep, run_fake)
    assert not before.is_cancelled()
    (sweep.folder / CANCELLED).write_text(str(time.time()))
    assert before.is_cancelled() and not Queue(sweep, run_fake).is_cancelled()


def test_an_error_before_a_run_exists_is_recorded_in_one_file(tmp_path: Path) -> None:
    with pytest.raises(LabError), claim_job(tmp_path / "job", "serial") as needed:
        assert needed
        raise LabError("no such thing")
    record = json.loads((tmp_path / "job" / JOB).read_text())
    assert record["error"] == "no such thing" and record["kind"] == "LabError" and record["attempts"] == 1
    assert state_of(tmp_path / "job").status == "failed"
    write_run(tmp_path / "job", "mha", 0, 0.5)  # as by `resume=FOLDER`, once the cause is mended
    assert (state_of(tmp_path / "job").status, state_of(tmp_path / "job").error) == ("ok", None)


def test_no_job_starts_on_a_table_that_changed_after_it_was_planned(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("text,label\n")
    planned = replace(sweep_of(tmp_path / "sweep", "end=ok", "end=ok"), data={str(table): digest_of(table)})
    write_sweep(planned)
    sweep = read_sweep(planned.folder)
    Queue(sweep, run_fake).work(sweep.jobs[0])
    table.write_text("label,text\n")
    with pytest.raises(DataError, match=r"table\.csv has changed since its runs were planned"):
        Queue(sweep, run_fake).work(sweep.jobs[1])
    assert statuses(sweep) == ["ok", "failed"]


def test_no_job_starts_on_images_of_a_table_that_changed_after_it_was_planned(tmp_path: Path) -> None:
    table, words = (
        tmp_path / "table.csv",
        ("task=image_csv", f"data.file={tmp_path / 'table.csv'}", "data.root=pictures"),
    )
    table.write_text("image,label\na.png,1\nmissing.png,2\n")
    (tmp_path / "pictures").mkdir()
    for name in ("a.png", "b.png"):
        (tmp_path / "pictures" / name).write_text("old")
    planned = sources_of_words(words)
    (tmp_path / "pictures" / "b.png").write_text("new")  # which the table does not name
    check_sources(planned, words)
    (tmp_path / "pictures" / "a.png").write_text("new")
    with pytest.raises(DataError, match=r"table\.csv \(images\) has changed since its runs were planned"):
        check_sources(planned, words)
    check_sources(planned, ("task=image_csv", "data.file=other.csv"))  # a job that does not read them
    table.unlink()
    with pytest.raises(DataError, match=r"table\.csv is gone since its runs were planned"):
        check_sources(planned, words)
