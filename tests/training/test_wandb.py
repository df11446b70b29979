"""Offline W&B runs, read from their files, contain everything that a dashboard and a workspace read."""

from __future__ import annotations

import json
import re
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import wandb
from omegaconf import OmegaConf
from support.plans import plan_of
from support.run_folders import write_run
from support.runs import SMALL, last_of_each, small_config
from support.yaml_options import as_yaml
from wandb.proto.wandb_internal_pb2 import Record

from sliceformer_lab.__main__ import main
from sliceformer_lab.commands.report.after_sweep import report_sweep
from sliceformer_lab.commands.report.wandb_comparison import job_records
from sliceformer_lab.commands.wandb import save_workspace
from sliceformer_lab.commands.wandb.command import COMMAND
from sliceformer_lab.commands.wandb.workspace import definition
from sliceformer_lab.commands.wandb.workspace_options import WorkspaceOptions
from sliceformer_lab.config.checked import ChosenNames
from sliceformer_lab.config.compose import CONF_DIR, compose_root
from sliceformer_lab.config.schema import schema
from sliceformer_lab.errors import LabError
from sliceformer_lab.measures.probe import ProbeRecord
from sliceformer_lab.runs.collect import collect
from sliceformer_lab.runs.folder import read_summary
from sliceformer_lab.runs.groups import tables
from sliceformer_lab.runs.sweep import PlannedJob, Sweep, read_sweep
from sliceformer_lab.training.context import RunContext
from sliceformer_lab.training.results import loggers
from sliceformer_lab.training.results.wandb_charts import spectrum_charts

SECRET = "0123456789abcdef0123456789abcdef01234567"


def log_records(content: bytes) -> Iterator[bytes]:
    """The records of a LevelDB log in blocks of 32 KiB, after a header of seven bytes."""
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
        self.charts: dict[str, Any] = {}  # key: its Vega preset, fields and strings
        for data in log_records(file.read_bytes()):
            self._take(Record.FromString(data))

    def _take(self, record: Any) -> None:
        match record.WhichOneof("record_type"):
            case "run":
                self.run = record.run
            case "config":
                visualized = _values(record.config.update).get("_wandb", {}).get("visualize", {})
                self.charts |= {key: chart["panel_config"] for key, chart in visualized.items()}
            case "history":
                self.history.append(_values(record.history.item))
            case "summary":
                self.summary |= _values(record.summary.update)
            case "metric":
                self.metrics[record.metric.name or record.metric.glob_name] = record.metric
            case "exit":
                self.exit_code = record.exit.exit_code

    @property
    def logged(self) -> set[str]:
        """Every key of the history."""
        return {key for row in self.history for key in row}

    def table(self, key: str) -> list[dict[str, Any]]:
        """The rows of a table of the history, from its file."""
        (entry,) = [row[key] for row in self.history if key in row]
        assert entry["_type"] == "table-file"
        content = json.loads((self.file.parent / "files" / entry["path"]).read_text())
        return [dict(zip(content["columns"], row, strict=True)) for row in content["data"]]


def _values(items: Any) -> dict[str, Any]:
    """Items as a dictionary, with nested keys as nested dictionaries."""
    found: dict[str, Any] = {}
    for item in items:
        *parts, last = [item.key] if item.key else item.nested_key
        place = found
        for part in parts:
            place = place.setdefault(part, {})
        place[last] = json.loads(item.value_json)
    return found


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> list[Offline]:
    """A sweep of two jobs, the second one fails, and their comparison. There is a key, but no network."""
    outputs = tmp_path_factory.mktemp("outputs")
    options = (
        "logger=wandb",
        "callbacks=default",
        "pictures=true",
        "tags=[trial]",
        "reference=auto",
        "optim.epochs=2",
        "trainer.log_every_n_steps=1",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_API_KEY", SECRET)
        patch.setenv("WANDB_DATA_DIR", str(outputs / "staging"))
        patch.setattr(loggers, "server_answers", lambda: False)
        measured = "callbacks.throughput.warmup_batches=0"
        words = last_of_each([*SMALL, *options, measured, "optim.lr=0.002,1e30", f"paths.outputs={outputs}"])
        assert main(["-m", *words]) == 1
    return [closed(file) for file in sorted(outputs.rglob("run-*.wandb"), key=lambda file: file.parents[2].name)]


def closed(file: Path) -> Offline:
    """An offline run, read once its last record is there; W&B's process may write it after the run has ended."""
    for _ in range(240):
        if (one := Offline(file)).exit_code is not None:
            return one
        time.sleep(0.5)
    raise AssertionError(f"{file.name} has no record of its end")


@pytest.fixture(scope="module")
def jobs(sweep: list[Offline]) -> list[Offline]:
    return [one for one in sweep if one.run.job_type == "train"]


@pytest.fixture(scope="module")
def comparison(sweep: list[Offline]) -> Offline:
    (one,) = [one for one in sweep if one.run.job_type == "comparison"]
    return one


def test_each_job_has_a_closed_run_of_its_own(jobs: list[Offline]) -> None:
    assert wandb.run is None
    assert [job.exit_code for job in jobs] == [0, 1]
    assert len({job.run.run_id for job in jobs}) == 2
    assert [read_summary(job.folder)["status"] for job in jobs] == ["ok", "diverged"]
    assert [job.summary["status"] for job in jobs] == ["ok", "diverged"]


def test_run_is_named_grouped_and_tagged(jobs: list[Offline]) -> None:
    for job in jobs:
        assert job.run.display_name == f"digits/mha/{job.folder.name}"
        assert job.run.run_group == job.folder.parent.name and list(job.run.tags) == ["digits", "mha", "trial"]


def test_a_run_alone_is_grouped_by_its_task_and_tagged_with_its_recipe(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        opened: dict[str, Any] = {}
        patch.setattr(loggers, "open_run", lambda folder, name, **options: opened.update(options) or wandb.Run)
        patch.setattr(wandb.Run, "define_metric", lambda *names, **options: None)
        patch.setattr(loggers, "WandbLogger", lambda experiment: experiment)
        context = RunContext(folder=tmp_path, seed=0, monitor=None, monitor_mode="max")
        names = {"task": "imdb", "attention": "csp", "recipe": "sequences/imdb_quick"}
        loggers.wandb_logger(context, replace(plan_of(small_config("tags=[imdb,mine]")), names=ChosenNames(**names)))
    assert opened["group"] == "imdb" and opened["job_type"] == "train"
    assert opened["tags"] == ["imdb", "csp", "sequences/imdb_quick", "imdb", "mine"]


def test_configuration_is_whole_and_without_secrets(sweep: list[Offline], jobs: list[Offline]) -> None:
    config = _values(jobs[0].run.config.update)
    assert config["optim"]["epochs"] == 2 and config["attention"] == {
        "_target_": "sliceformer_lab.attention.mha.MHA",
        "qk_norm": False,
        "gate": False,
        "times_tokens": False,
    }
    for one in sweep:
        for file in (one.file, *one.folder.rglob("*.log"), *one.folder.rglob("*.yaml"), *one.folder.rglob("*.json")):
            assert SECRET.encode() not in file.read_bytes()


def test_each_metric_has_its_axis_and_the_monitored_one_its_best(jobs: list[Offline]) -> None:
    job = jobs[0]
    steps = [row["trainer/global_step"] for row in job.history if "train/batch_loss" in row]
    assert steps == list(range(4))
    assert [row["epoch"] for row in job.history if "val/accuracy" in row] == [0, 1]
    assert [row["epoch"] for row in job.history if "spectrum/output_stable_rank_mean" in row] == [-1, 1]
    axes = {name: metric.step_metric for name, metric in job.metrics.items()}
    assert axes == {
        "train/*": "trainer/global_step",
        "pretrain/train/*": "trainer/global_step",
        "pretrain/val/*": "pretrain/epoch",
        **dict.fromkeys(["val/*", "test_curve/*", "spectrum/*", "val/accuracy"], "epoch"),
    }
    assert [name for name, metric in job.metrics.items() if metric.summary.max or metric.summary.min] == [
        "val/accuracy"
    ]
    globs = [name.removesuffix("*") for name in axes if name.endswith("*")]
    assert not [(a, b) for a in globs for b in globs if a != b and a.startswith(b)]  # the server would take either
    scalars = {key for key in job.logged if not key.startswith(("_", "charts/", "pictures/"))}
    assert not [key for key in scalars - {"epoch", "trainer/global_step"} if not key.startswith(tuple(globs))]


def test_pictures_and_summary_values_are_logged(jobs: list[Offline]) -> None:
    assert {"pictures/curves", "pictures/spectrum"} <= jobs[0].logged
    images = jobs[0].file.parent / "files" / "media" / "images" / "pictures"
    names = [file.name.split("_")[0] for file in images.glob("*.png")]
    assert sorted(names) == ["confusion", "curves", "mistakes", "spectrum"]
    recorded = read_summary(jobs[0].folder)
    assert jobs[0].summary["test/accuracy"] == recorded["metrics"]["test/accuracy"]
    assert jobs[0].summary["val/accuracy"] == recorded["best"]["value"]
    assert jobs[0].summary["parameters"] == recorded["parameters"]
    assert jobs[0].summary["samples_per_second"] == recorded["samples_per_second"] > 0


def test_spectra_are_charts_of_the_run_folder_s_record(jobs: list[Offline]) -> None:
    job = jobs[0]
    assert len(job.charts) == 6 and {f"{key}_table" for key in job.charts} <= job.logged
    for key, chart in job.charts.items():
        assert chart["panelDefId"] == "wandb/lineseries/v0"
        assert set(job.table(f"{key}_table")[0]) == set(chart["fieldSettings"].values())
    record = ProbeRecord.load(job.folder / "spectrum.npz")
    second = [r["lineVal"] for r in job.table("charts/spectrum_by_layer_table") if r["lineKey"] == "layer 2"]
    np.testing.assert_allclose(10 ** np.array(second), record.at("spectrum", "output", "raw")[1], rtol=1e-6)
    rows = job.table("charts/residual_by_depth_table")
    first = [(r["step"], r["lineVal"]) for r in rows if r["lineKey"] == "Operator output, before training"]
    assert first == [(i + 1, v) for i, v in enumerate(record.at("residual", "output", "raw", moment=0))]
    assert {r["lineKey"] for r in job.table("charts/spectrum_over_training_table")} == {
        "before training",
        "after epoch 2",
    }


def test_charts_drop_nan_and_thin_long_runs(jobs: list[Offline]) -> None:
    record = ProbeRecord.load(jobs[0].folder / "spectrum.npz")
    for _ in range(3):
        record = record.followed_by(record)
    record = replace(record, epochs=np.arange(-1, 15))
    record.mean["residual"][-1, 0] = np.nan
    charts = spectrum_charts(record)
    values = [value for chart in charts.values() for _, _, value in chart.table.data]
    assert np.isfinite(values).all()
    assert [
        x for x, name, _ in charts["charts/residual_by_depth"].table.data if name.startswith("Block output, a")
    ] == [2]
    moments = [name for x, name, _ in charts["charts/spectrum_over_training"].table.data if x == 1]
    assert len(set(moments)) == 6 and {moments[0], moments[-1]} == {"before training", "after epoch 15"}


def test_a_sweep_ends_with_one_table_of_all_its_jobs(jobs: list[Offline], comparison: Offline) -> None:
    assert comparison.run.display_name == "comparison" and comparison.exit_code == 0
    assert comparison.run.run_group == jobs[0].run.run_group == comparison.folder.name
    ok, diverged = comparison.table("comparison/jobs")
    recorded = read_summary(jobs[0].folder)
    for key in ("job", "status", "optim.lr", "error"):
        assert ok[key] != diverged[key]
    assert (ok["attention"], ok["seed"], ok["status"], diverged["status"]) == ("mha", 0, "ok", "diverged")
    assert ok["test/accuracy"] == recorded["metrics"]["test/accuracy"] and diverged["test/accuracy"] is None
    assert ok["multiply_adds"] == recorded["cost_per_sample"]["multiply_adds"]
    for key in ("parameters", "samples_per_second", "peak_memory_gb", "wall_seconds"):
        assert ok[key] == recorded[key]
    assert "loss became nan" in diverged["error"]
    assert comparison.summary["jobs"] == 2 and comparison.summary["jobs_diverged"] == 1
    rows = comparison.table("comparison/rows")
    assert [row["statuses"] for row in rows if row["statuses"]] == ["1 ok", "1 diverged"]
    references = ["reference: HOG + support vectors", "reference: commonest class"]
    assert sorted(row["attention"] for row in rows if not row["statuses"]) == references
    (bar,) = comparison.table("comparison/metric_by_attention_table")
    assert bar == {"attention": "mha (1 of 1)", "test/accuracy": recorded["metrics"]["test/accuracy"]}
    assert comparison.charts["comparison/metric_by_attention"]["panelDefId"] == "wandb/bar/v0"


def test_the_comparison_is_no_run_of_the_report(jobs: list[Offline]) -> None:
    found = collect(jobs[0].folder.parent)
    assert len(found.runs) == 2 and not found.unreadable and not found.missing


def test_jobs_that_left_nothing_are_rows_too(tmp_path: Path) -> None:
    write_run(tmp_path / "10-csp", "csp", options={"encoder.depth": 8})
    write_run(tmp_path / "2-csp", "csp", seed=1)
    (write_run(tmp_path / "3-mha", "mha") / "summary.json").write_text("{")
    config = {"hydra": {"job": {"config_name": "config"}, "overrides": {"task": ["attention=csp", "seed=0,1,2,3,4"]}}}
    OmegaConf.save(OmegaConf.create(config), tmp_path / "multirun.yaml")
    found = collect(tmp_path)
    records = job_records(found, [(table, []) for table in tables(found, (), None)])
    assert [record["job"] for record in records] == ["0", "1", "2-csp", "3", "3-mha", "4", "10-csp"]
    assert [record["status"] for record in records].count("missing") == 4
    by_job = {record["job"]: record for record in records}
    assert by_job["3-mha"]["status"] == "unreadable" and "cannot be read" in by_job["3-mha"]["error"]
    assert (by_job["10-csp"]["encoder.depth"], by_job["2-csp"]["encoder.depth"]) == ("8", "4")
    assert len({tuple(record) for record in records}) == 1


def test_a_refusing_server_fails_nothing(
    sweep: list[Offline], jobs: list[Offline], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(sweep: Path, logger: dict[str, Any]) -> str:
        raise ValueError(logger["project"])

    monkeypatch.setattr("sliceformer_lab.commands.report.wandb_comparison.log_comparison", refuse)
    report_sweep(replace(read_sweep(jobs[0].folder.parent), study=None))
    said = "the comparison of the sweep could not be sent to W&B (ValueError: sliceformer_lab)\n"
    assert capsys.readouterr().out == said


def test_a_sweep_without_wandb_is_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "sweep" / "0-csp")
    report_sweep(Sweep(tmp_path / "sweep", (PlannedJob("0-csp", ()), PlannedJob("1-refused", ()))))
    assert capsys.readouterr().out == ""
    assert sorted(file.name for file in (tmp_path / "sweep").iterdir()) == ["0-csp"]


def read_by(panel: dict[str, Any]) -> set[str]:
    """The keys of runs that a panel of a workspace reads."""
    config = panel["config"]
    match panel["viewType"]:
        case "Run History Line Plot":
            return {config["xAxis"], *config["metrics"]}
        case "Bar Chart":
            return set(config["metrics"])
        case "Scatter Plot":
            return {config["xAxis"], config["yAxis"]}
        case "Media Browser":
            return set(config["mediaKeys"])
        case "Vega2":
            (sets,) = config["userQuery"]["queryFields"]
            return {arg["value"] for query in sets["fields"] for arg in query.get("args") or []}
        case "Weave":
            return {config["panel2Config"]["exp"]["fromOp"]["inputs"]["key"]["val"]}
        case kind:
            assert kind == "Markdown Panel"
            return set()


def specification(workspace: Any) -> dict[str, Any]:
    """What is sent to the server."""
    return json.loads(workspace._to_model().spec.model_dump_json(by_alias=True, exclude_none=True))


def panel_keys(content: dict[str, Any]) -> list[set[str]]:
    """What each panel of a workspace reads."""
    sections = content["section"]["panelBankConfig"]["sections"]
    return [read_by(panel) for section in sections for panel in section["panels"]]


def test_a_workspace_reads_only_what_runs_log(jobs: list[Offline], comparison: Offline) -> None:
    content = specification(definition(WorkspaceOptions(group="one"), "me"))["section"]
    sections = {section["name"]: section["panels"] for section in content["panelBankConfig"]["sections"]}
    wanted = ["Metric by attention", "Accuracy against speed", "Spectra", "Residual and rank against depth"]
    assert {*wanted, "Parameters and cost"} <= set(sections)
    summaries = set(jobs[0].summary) | set(comparison.summary)
    there = jobs[0].logged | comparison.logged | summaries
    for panel in (panel for panels in sections.values() for panel in panels):
        for key in read_by(panel):
            name = key.removeprefix("summary:").removeprefix("summary_metrics.")
            assert name in (summaries if name != key else there), f"{panel['viewType']} reads {key}"
        if grouped := panel["config"].get("groupBy"):
            top, _, inner = grouped.partition(".value.")
            assert inner in _values(jobs[0].run.config.update)[top]
        if panel["viewType"] == "Vega2":
            (table,) = read_by(panel)
            source = next(one for one in (jobs[0], comparison) if table in one.logged)
            chart = source.charts[table.removesuffix("_table")]
            assert panel["config"]["panelDefId"] == chart["panelDefId"]
            assert panel["config"]["fieldSettings"] == chart["fieldSettings"]
            assert set(panel["config"]["stringSettings"]) == set(chart["stringSettings"])
    (runs,) = content["runSets"]
    assert [(f["key"]["name"], f["value"]) for f in runs["filters"]["filters"]] == [("group", "one")]
    assert not definition(WorkspaceOptions(), "me").runset_settings.filters


@pytest.mark.parametrize(("key", "answers", "offline"), [(True, True, False), (True, False, True), (False, True, True)])
def test_offline_by_itself_without_key_or_network(
    key: bool, answers: bool, offline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loggers, "has_key", lambda: key)
    monkeypatch.setattr(loggers, "server_answers", lambda: answers)
    assert loggers.must_be_offline() is offline


def test_key_is_found_in_environment_and_netrc_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not loggers.has_key()
    (tmp_path / ".netrc").write_text(f"machine api.wandb.ai login user password {SECRET}\n")
    (tmp_path / ".netrc").chmod(0o600)
    assert loggers.has_key()
    (tmp_path / ".netrc").unlink()
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    assert loggers.has_key()


def test_another_server_is_asked_where_one_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_BASE_URL", raising=False)
    assert loggers.server_url() == "https://api.wandb.ai"
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".netrc").write_text(f"machine 127.0.0.1 login user password {SECRET}\n")
    (tmp_path / ".netrc").chmod(0o600)
    assert not loggers.has_key()
    with graphql_server() as (address, _):
        monkeypatch.setenv("WANDB_BASE_URL", address)
        assert loggers.has_key() and loggers.server_answers()
    assert not loggers.server_answers()


@contextmanager
def graphql_server(refuses: str = "") -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server on this machine that has one user and takes views, or `refuses`: its address, and what it was asked."""
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer: dict[str, Any] = {}
            if self.path == "/graphql":
                asked.append(json.loads(body))
                answer = {"data": {"viewer": {"id": "1", "entity": "me", "username": "me", "teams": {"edges": []}}}}
                if "upsertView" in asked[-1]["query"]:
                    view = {"upsertView": {"view": {"id": "2", "name": "nw-abc-v"}, "inserted": True}}
                    answer = {"errors": [{"message": refuses}]} if refuses else {"data": view}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_workspace_is_saved_for_the_keys_own_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    with graphql_server() as (address, asked):
        monkeypatch.setenv("WANDB_BASE_URL", address)
        save_workspace.run(WorkspaceOptions(project="ranks", name="mine"), tmp_path)
    (sent,) = [request["variables"] for request in asked if "upsertView" in request["query"]]
    assert (sent["entityName"], sent["projectName"], sent["displayName"]) == ("me", "ranks", "mine")
    expected = definition(WorkspaceOptions(project="ranks", name="mine"), "me")
    assert panel_keys(json.loads(sent["spec"])) == panel_keys(specification(expected))
    assert json.loads((tmp_path / "workspace.json").read_text())["url"].startswith(f"{address}/me/ranks?nw=abc")


def test_a_server_that_refuses_is_told_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    with graphql_server(refuses="project not found") as (address, _):
        monkeypatch.setenv("WANDB_BASE_URL", address)
        with pytest.raises(LabError, match=r"in team/lost \(.*project not found\); the project must exist") as told:
            save_workspace.run(WorkspaceOptions(entity="team", project="lost"), tmp_path)
    assert "\n" not in str(told.value) and not list(tmp_path.iterdir())


def test_upload_command_is_printed(jobs: list[Offline]) -> None:
    for job in jobs:
        log = (job.folder / "sliceformer_lab.log").read_text()
        assert f"upload to W&B with: wandb sync {job.file.parent}" in log
    sweep = jobs[0].folder.parent
    (place,) = (sweep / ".wandb").glob("offline-run-*")
    assert loggers.sync_command(sweep) == f"wandb sync {place}"


def dashboard(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    capfd.readouterr()
    code = main(["wandb", *arguments])
    return code, capfd.readouterr().err


def test_a_workspace_that_cannot_be_saved_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    place = f"paths.outputs={tmp_path}"
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(save_workspace, "server_answers", lambda: False)
    code, err = dashboard(capfd, place)
    assert (code, err.count("\n")) == (1, 1) and "no key" in err and "WANDB_API_KEY" in err
    code, err = dashboard(capfd, place, "entty=me")
    assert (code, err.count("\n")) == (1, 1) and "did you mean entity" in err
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    with pytest.raises(LabError, match="does not answer: workspaces live on the server"):
        save_workspace.run(WorkspaceOptions(), tmp_path)
    monkeypatch.setattr(save_workspace, "find_spec", lambda name: None)
    with pytest.raises(LabError, match=r"pip install 'sliceformer-lab\[dashboard\]'"):
        save_workspace.run(WorkspaceOptions(), tmp_path)
    assert not list(tmp_path.rglob("*"))


def test_the_yaml_lists_every_option_with_its_default_and_explains_it() -> None:
    root = compose_root([], COMMAND.config_name)
    options = {name: value for name, value in root.items() if name not in ("hydra", "paths")}
    assert options == {name: as_yaml(default) for name, (_, default) in schema(WorkspaceOptions).items()}
    written = (CONF_DIR / "wandb.yaml").read_text(encoding="utf-8")
    for option in options:
        assert re.search(rf"^{option}: .* # \S", written, re.M) and re.search(
            rf"^  {option}: ", COMMAND.help_text(), re.M
        )
    assert all(example in COMMAND.help_text() for example in COMMAND.examples)
