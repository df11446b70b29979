"""A W&B server on this machine receives everything that a dashboard and a workspace read."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import wandb
from omegaconf import OmegaConf
from support.run_folders import read_summary, write_run
from support.runs import SMALL, last_of_each
from support.wandb_server import KEY, StoredRun, WandbServer, upload, wandb_server

from sliceformer_lab import errors, load_export, load_run
from sliceformer_lab.__main__ import main
from sliceformer_lab.commands.report.after_sweep import report_sweep
from sliceformer_lab.commands.report.figures.plot_rows import plot_tables
from sliceformer_lab.commands.report.lines import lines
from sliceformer_lab.commands.report.report_options import ReportOptions
from sliceformer_lab.commands.wandb import save
from sliceformer_lab.commands.wandb.logged_runs import logged_runs
from sliceformer_lab.commands.wandb.wandb_options import WandbOptions
from sliceformer_lab.commands.wandb.workspace import workspace
from sliceformer_lab.errors import LabError
from sliceformer_lab.measures.probe_record import ProbeRecord
from sliceformer_lab.runs.collect import collect
from sliceformer_lab.runs.groups import tables
from sliceformer_lab.runs.job_table import job_records
from sliceformer_lab.runs.sweep import PlannedJob, Sweep, read_sweep, write_sweep
from sliceformer_lab.training.results import references, wandb_names, wandb_runs
from sliceformer_lab.training.results.wandb_artifacts import read_predictions

LOGGED = ("logger=wandb", "optim.epochs=2", "trainer.log_every_n_steps=1")


@pytest.fixture(scope="module")
def server() -> Iterator[WandbServer]:
    with wandb_server() as one:
        yield one


@pytest.fixture(scope="module")
def folder(server: WandbServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep of two jobs, the second one fails; the server has their comparison too."""
    outputs = tmp_path_factory.mktemp("outputs")
    options = ("callbacks=default", "pictures=true", "tags=[trial]", "reference=auto", "logger.artifacts=all")
    measured = "callbacks.throughput.warmup_batches=0"
    words = last_of_each([*SMALL, *LOGGED, *options, measured, "optim.lr=0.002,1e30", f"paths.outputs={outputs}"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(references, "MIN_REFERENCE_S", 600.0)  # half a minute is short on a busy machine
        assert main(["-m", *words]) == 1
    return next((outputs / "sweeps").iterdir())


@pytest.fixture(scope="module")
def places(folder: Path) -> list[Path]:
    """The run folders of the sweep."""
    return sorted(place for place in folder.iterdir() if (place / "summary.json").is_file())


@pytest.fixture(scope="module")
def jobs(folder: Path, server: WandbServer) -> list[StoredRun]:
    return server.runs_of("train")


@pytest.fixture(scope="module")
def comparison(folder: Path, server: WandbServer) -> StoredRun:
    (one,) = server.runs_of("comparison")
    return one


def test_each_job_has_a_closed_run_of_its_own_and_no_alert(
    jobs: list[StoredRun], places: list[Path], server: WandbServer
) -> None:
    assert wandb.run is None and not server.alerts
    assert [job.exit_code for job in jobs] == [0, 1]
    assert [job.id for job in jobs] == [(place / "wandb_id.txt").read_text() for place in places]
    assert [read_summary(place)["status"] for place in places] == ["ok", "diverged"]
    assert [job.summary["status"] for job in jobs] == ["ok", "diverged"]


def test_the_best_model_opens_from_its_artifact_and_names_its_data(
    jobs: list[StoredRun], places: list[Path], server: WandbServer, tmp_path: Path
) -> None:
    logged = {artifact["artifactTypeName"]: artifact for artifact in server.artifacts.values()}
    assert {"model", "predictions", "dataset", "checkpoints"} <= set(logged)
    model, data = logged["model"], logged["dataset"]
    assert "best" in [alias["alias"] for alias in model["aliases"]] and model["committed"]
    digests = read_summary(places[0])["digests"]
    assert digests["test"] in data["metadata"] and digests["test"] in model["metadata"]
    assert server.artifacts[server.used_artifacts[0]] is data
    assert json.loads(data["contents"]["digests.json"]) == digests  # other data are another version
    for name in model["files"]:
        (tmp_path / name).write_bytes(model["contents"][name])
    opened, expected = load_export(tmp_path), load_run(places[0]).model
    example = expected.example()
    torch.testing.assert_close(opened(example), expected(example), rtol=0, atol=0)
    (table,) = [name for name in logged["predictions"]["files"] if name.endswith(".table.json")]
    assert b"probability_0" in logged["predictions"]["contents"][table]


@pytest.mark.parametrize("names", [["01", "02"], ["NA", "null"]])
def test_classes_that_look_like_numbers_or_gaps_keep_their_names(names: list[str], tmp_path: Path) -> None:
    file = tmp_path / "predictions.csv"
    rows = [f"test,{name},{name},{name},{rest}" for name, rest in zip(names, ("0.25,", "0.5,2"), strict=True)]
    file.write_text("\n".join(["split,text,target,prediction,probability_01,target_gap", *rows]))
    table = read_predictions(file)
    assert all(table[column].tolist() == names for column in ("text", "target", "prediction"))
    assert table["probability_01"].tolist() == [0.25, 0.5] and table["target_gap"].isna().tolist() == [True, False]


def test_run_is_named_grouped_and_tagged(jobs: list[StoredRun], places: list[Path]) -> None:
    assert [job.facts["displayName"] for job in jobs] == [
        "mha, optim.lr=0.002, seed 0 (digits)",
        "mha, optim.lr=1e+30, seed 0 (digits)",
    ]
    assert jobs[1].facts["notes"].startswith("Compares optim.lr (0.002, 1e+30), on digits; this run is 1-")
    for job, place in zip(jobs, places, strict=True):
        assert job.facts["groupName"] == place.parent.name and job.facts["tags"] == ["digits", "mha", "trial"]


def test_configuration_is_whole_and_without_secrets(folder: Path, places: list[Path], jobs: list[StoredRun]) -> None:
    config, recorded = jobs[0].config, read_summary(places[0])
    assert (config["digests"], config["git_commit"]) == (recorded["digests"], recorded["git_commit"])
    assert config["optim"]["epochs"] == 2 and config["nodes"]["attention"] == {
        "_target_": "sliceformer_lab.attention.mha.MHA",
        "qk_norm": False,
        "gate": False,
        "times_tokens": False,
    }
    assert (config["attention"], config["task"], config["seed"]) == ("mha", "digits", 0)
    assert config["params"] == jobs[0].summary["parameters"]
    assert config["versions"]["torch"] == version("torch")
    for file in folder.rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes()
    for content in (content for job in jobs for content in job.files.values()):
        assert KEY.encode() not in content


def test_each_metric_has_its_axis_and_the_monitored_one_its_best(jobs: list[StoredRun]) -> None:
    job = jobs[0]
    steps = [row["trainer/global_step"] for row in job.history if "train/batch_loss" in row]
    assert steps == list(range(4))
    assert [row["epoch"] for row in job.history if "val/accuracy" in row] == [0, 1]
    assert [row["epoch"] for row in job.history if "spectrum/output_stable_rank_mean" in row] == [-1, 1]
    axes = {name: metric["axis"] for name, metric in job.metrics.items() if metric["axis"]}
    assert axes == {
        "train/*": "trainer/global_step",
        "pretrain/train/*": "trainer/global_step",
        "pretrain/val/*": "pretrain/epoch",
        **dict.fromkeys(["val/*", "test_curve/*", "spectrum/*", "val/accuracy"], "epoch"),
    }
    assert [name for name, metric in job.metrics.items() if metric["summary"]] == ["val/accuracy"]  # none of W&B's own
    globs = [name.removesuffix("*") for name in axes if name.endswith("*")]
    assert not [(a, b) for a in globs for b in globs if a != b and a.startswith(b)]  # the server would take either
    scalars = {key for key in job.logged if not key.startswith(("_", "charts/", "pictures/"))}
    assert not [key for key in scalars - {"epoch", "trainer/global_step"} if not key.startswith(tuple(globs))]


def test_pictures_and_summary_values_are_logged(jobs: list[StoredRun], places: list[Path]) -> None:
    assert {"pictures/curves", "pictures/spectrum"} <= jobs[0].logged
    names = [Path(name).name.split("_")[0] for name in jobs[0].files if name.startswith("media/images/pictures")]
    assert sorted(names) == ["confusion", "curves", "mistakes", "spectrum"]
    recorded = read_summary(places[0])
    assert jobs[0].summary["test/accuracy"] == recorded["metrics"]["test/accuracy"]
    assert jobs[0].summary["val/accuracy"] == recorded["best"]["value"]
    assert jobs[0].summary["parameters"] == recorded["parameters"]
    assert jobs[0].summary["samples_per_second"] == recorded["samples_per_second"] > 0


def test_spectra_are_charts_of_the_run_folder_s_record(jobs: list[StoredRun], places: list[Path]) -> None:
    job = jobs[0]
    assert len(job.charts) == 6 and {f"{key}_table" for key in job.charts} <= job.logged
    for key, chart in job.charts.items():
        assert chart["panelDefId"] == "wandb/lineseries/v0"
        assert set(job.table(f"{key}_table")[0]) == set(chart["fieldSettings"].values())
    record = ProbeRecord.load(places[0] / "spectrum.npz")
    second = [r["lineVal"] for r in job.table("charts/spectrum_by_layer_table") if r["lineKey"] == "layer 2"]
    np.testing.assert_allclose(10 ** np.array(second), record.at("spectrum", "output", "raw")[1], rtol=1e-6)
    rows = job.table("charts/residual_by_depth_table")
    first = [(r["step"], r["lineVal"]) for r in rows if r["lineKey"] == "Operator output, before training"]
    assert first == [(i + 1, v) for i, v in enumerate(record.at("residual", "output", "raw", moment=0))]
    assert {r["lineKey"] for r in job.table("charts/spectrum_over_training_table")} == {
        "before training",
        "after epoch 2",
    }


def test_a_sweep_ends_with_one_table_of_all_its_jobs(folder: Path, places: list[Path], comparison: StoredRun) -> None:
    found = collect(folder)
    assert len(found.runs) == 2 and not found.unreadable and not found.missing, "the comparison is no run"
    assert comparison.facts["displayName"] == "comparison of mha (digits)" and comparison.exit_code == 0
    assert comparison.facts["notes"] == "Compares optim.lr (0.002, 1e+30), on digits."
    assert comparison.facts["groupName"] == places[0].parent.name
    ok, diverged = comparison.table("comparison/jobs")
    recorded = read_summary(places[0])
    for key in ("job", "status", "optim.lr", "error"):
        assert ok[key] != diverged[key]
    assert (ok["attention"], ok["seed"], ok["status"], diverged["status"]) == ("mha", 0, "ok", "diverged")
    assert ok["test/accuracy"] == recorded["metrics"]["test/accuracy"] and diverged["test/accuracy"] is None
    assert ok["multiply_adds"] == recorded["cost_per_sample"]["multiply_adds"]
    for key in ("parameters", "samples_per_second", "peak_memory_gb", "wall_seconds"):
        assert ok[key] == recorded[key]
    assert "loss became nan" in diverged["error"]
    assert comparison.summary["comparison/mha/mean"] == recorded["metrics"]["test/accuracy"]
    assert comparison.summary["comparison/mha/n"] == 1
    assert comparison.summary["jobs"] == 2 and comparison.summary["jobs_diverged"] == 1
    rows = comparison.table("comparison/rows")
    assert [row["statuses"] for row in rows if row["statuses"]] == ["1 ok", "1 diverged"]
    references = ["reference: HOG + support vectors", "reference: commonest class"]
    assert sorted(row["attention"] for row in rows if not row["statuses"]) == references
    (shown,) = [row["pictures/scores"] for row in comparison.history if "pictures/scores" in row]
    picture = shown["filenames"][0] if "filenames" in shown else shown["path"]
    assert comparison.files[picture].startswith(b"\x89PNG") and "95 % interval" in json.dumps(shown)


def test_jobs_that_left_nothing_are_rows_too(tmp_path: Path) -> None:
    write_run(tmp_path / "10-csp", "csp", options={"encoder.depth": 8})
    write_run(tmp_path / "2-csp", "csp", seed=1)
    (write_run(tmp_path / "3-mha", "mha") / "summary.json").write_text("{")
    jobs = [PlannedJob(f"{seed}-csp", ("attention=csp", f"seed={seed}")) for seed in range(5)]
    write_sweep(Sweep(tmp_path, tuple(jobs)))
    found = collect(tmp_path)
    records = job_records(found, tables(found, (), None))
    assert [record["job"] for record in records] == ["0", "1", "2-csp", "3", "3-mha", "4", "10-csp"]
    assert [record["status"] for record in records].count("missing") == 4
    by_job = {record["job"]: record for record in records}
    assert by_job["3-mha"]["status"] == "unreadable" and "cannot be read" in by_job["3-mha"]["error"]
    assert (by_job["10-csp"]["encoder.depth"], by_job["2-csp"]["encoder.depth"]) == ("8", "4")
    assert len({tuple(record) for record in records}) == 1


def test_a_refusing_server_fails_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(sweep: Path, logger: dict[str, Any]) -> str:
        raise ValueError(logger["project"])

    monkeypatch.setattr("sliceformer_lab.commands.report.write_report.send_comparison", refuse)
    report_sweep(replace(read_sweep(folder), study=None))
    said = "the comparison of the sweep could not be sent to W&B (ValueError: sliceformer_lab)\n"
    assert capsys.readouterr().out == said


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
        case "Parallel Coordinates Plot":
            return {column["accessor"] for column in config["columns"]}
        case "Parameter Importance":
            return {f"summary:{config['targetKey']}"}
        case kind:
            assert kind in ("Markdown Panel", "Run Comparer")
            return set()


def specification(workspace: Any) -> dict[str, Any]:
    """What is sent to the server."""
    return json.loads(workspace._to_model().spec.model_dump_json(by_alias=True, exclude_none=True))


def panel_keys(content: dict[str, Any]) -> list[set[str]]:
    """What each panel of a workspace reads."""
    sections = content["section"]["panelBankConfig"]["sections"]
    return [read_by(panel) for section in sections for panel in section["panels"]]


def panel_of_config(config: dict[str, Any], accessor: str) -> Any:
    """The value at config:optim.value.lr in a run's configuration."""
    value = config
    for name in accessor.removeprefix("config:").replace(".value", "", 1).split("."):
        value = value[name]
    return value


def test_a_workspace_reads_only_what_runs_log(folder: Path, jobs: list[StoredRun], comparison: StoredRun) -> None:
    content = specification(workspace(logged_runs(WandbOptions(folder=str(folder))), "me"))["section"]
    sections = {section["name"]: section["panels"] for section in content["panelBankConfig"]["sections"]}
    wanted = ["Metric by attention", "Metric against cost", "Learning curves", "Confusion and mistakes"]
    assert list(sections) == [*wanted, "Spectra by layer", "Options"]
    summaries = set(jobs[0].summary) | set(comparison.summary)
    there = jobs[0].logged | comparison.logged | summaries
    results, *panels = [panel for panels in sections.values() for panel in panels]
    assert "pictures/scores" in read_by(results) & comparison.logged  # others of its keys are those of audits and maps
    for panel in panels:
        for key in read_by(panel):
            if key.startswith("config:"):
                assert panel_of_config(jobs[0].config, key) is not None
                continue
            name = key.removeprefix("summary:").removeprefix("summary_metrics.")
            assert name in (summaries if name != key else there), f"{panel['viewType']} reads {key}"
        if grouped := panel["config"].get("groupBy"):
            assert grouped.removesuffix(".value") in jobs[0].config
        if panel["viewType"] == "Vega2":
            (table,) = read_by(panel)
            chart = jobs[0].charts[table.removesuffix("_table")]
            assert panel["config"]["panelDefId"] == chart["panelDefId"]
            assert panel["config"]["fieldSettings"] == chart["fieldSettings"]
            assert set(panel["config"]["stringSettings"]) == set(chart["stringSettings"])
    (runs,) = content["runSets"]
    assert [(f["key"]["name"], f["value"]) for f in runs["filters"]["filters"]] == [("group", folder.name)]
    assert not workspace(logged_runs(WandbOptions()), "me").runset_settings.filters


def test_a_workspace_has_softmax_attention_as_baseline_and_the_colours_of_the_report(
    folder: Path, jobs: list[StoredRun], tmp_path: Path
) -> None:
    runs = logged_runs(WandbOptions(folder=str(folder)))
    assert runs.baseline == jobs[0].id and runs.varied == ("optim.lr",)
    shown = workspace(runs, "me").runset_settings
    assert shown.baseline_run == jobs[0].id and shown.groupby[0].name == "attention"
    for number, attention in enumerate(("mha", "csp", "identity")):
        place = write_run(tmp_path / f"{number}", attention)
        (place / "wandb_id.txt").write_text(f"id{number}")
        logger = {"_target_": wandb_names.LOGGER, "project": "p", "entity": None, "group": None}
        OmegaConf.save(
            OmegaConf.create({**OmegaConf.load(place / "config.yaml"), "logger": logger}), place / "config.yaml"
        )
    runs = logged_runs(WandbOptions(folder=str(tmp_path)))
    found = collect(tmp_path)
    (drawn,) = plot_tables([(table, lines(table, ReportOptions())) for table in tables(found, (), None)])
    assert runs.colours == {row.line.row.attention: row.look.colour for row in drawn.rows}
    assert len(set(runs.colours.values())) == 3 and runs.baseline == "id0"


def test_a_report_is_our_page_with_a_set_of_runs_for_each_attention(
    folder: Path, server: WandbServer, comparison: StoredRun, tmp_path: Path, refused: Callable[..., str]
) -> None:
    place = f"paths.outputs={tmp_path}"
    assert "holds no page yet; write it with: report " in refused("wandb", "report", str(folder), place)
    assert main(["report", str(folder), "reference=mha"]) == main(["wandb", "report", str(folder), place]) == 0
    assert json.loads((tmp_path / "dashboard" / "report.json").read_text())["metric"] == "test/accuracy"
    sent = server.views[-1]
    assert sent["displayName"] == f"Runs below {folder.name}" and sent["type"] == "runs"
    blocks = json.loads(sent["spec"])["blocks"]
    (text,) = [block["content"] for block in blocks if block["type"] == "markdown-block"]
    assert text in (folder / "report" / "report.md").read_text() and "| mha |" in text
    (command,) = [block for block in blocks if block["type"] == "code-block"]
    assert "optim.lr=0.002,1e30" in json.dumps(command)
    grids = [block["metadata"] for block in blocks if block["type"] == "panel-grid"]
    assert len(grids) == 6 and "pictures/scores" in json.dumps(grids[0]["panelBankSectionConfig"])
    for grid in grids:
        assert [runset["name"] for runset in grid["runSets"]] == ["mha", "results"]
        assert {*grid["customRunColors"].values()} >= {logged_runs(WandbOptions(folder=str(folder))).colours["mha"]}
        assert "comparison" in json.dumps(grid["runSets"]) and folder.name in json.dumps(grid["runSets"])


def test_a_key_is_found_in_environment_and_netrc_for_the_server_that_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WANDB_API_KEY", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert wandb_runs.server_url() == "https://api.wandb.ai" and not wandb_runs.has_key()
    (tmp_path / ".netrc").write_text(f"machine 127.0.0.1 login user password {KEY}\n")
    (tmp_path / ".netrc").chmod(0o600)
    assert not wandb_runs.has_key()
    with wandb_server() as server:
        monkeypatch.delenv("WANDB_API_KEY")
        assert wandb_runs.has_key() and not wandb_runs.must_be_offline()
    monkeypatch.setenv("WANDB_BASE_URL", server.address)
    assert not wandb_runs.server_answers() and wandb_runs.must_be_offline()
    (tmp_path / ".netrc").unlink()
    assert not wandb_runs.has_key()
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    assert wandb_runs.has_key()


def test_a_workspace_is_saved_for_the_keys_own_user(tmp_path: Path) -> None:
    with wandb_server() as server:
        assert main(["wandb", "project=ranks", "name=mine", f"paths.outputs={tmp_path}"]) == 0
    (sent,) = server.views
    assert (sent["entityName"], sent["projectName"], sent["displayName"]) == ("me", "ranks", "mine")
    expected = workspace(logged_runs(WandbOptions(project="ranks", name="mine")), "me")
    assert panel_keys(json.loads(sent["spec"])) == panel_keys(specification(expected))
    assert json.loads((tmp_path / "dashboard" / "workspace.json").read_text())["url"].startswith(
        f"{server.address}/me/ranks?nw="
    )


def history_of(run: StoredRun) -> list[tuple[str, float]]:
    """What a curve shows: each metric with its place on the axis, in the order of the history."""
    axes = {"train": "trainer/global_step", "val": "epoch", "spectrum": "epoch"}
    return [(key, row[axes[key.split("/")[0]]]) for row in run.history for key in row if key.split("/")[0] in axes]


KILLED = """
import os, signal, sys
from sliceformer_lab.__main__ import main
from sliceformer_lab.callbacks.guard import Guard
left = int(sys.argv[1])
def kill(self, trainer, *others):
    global left
    left -= trainer.global_step == 5
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
Guard.on_train_batch_end = kill
main(sys.argv[2:])
"""


def killed_by_signal(words: list[str], job: int = 1) -> bool:
    """Whether a process of its own, with a W&B service of its own, was killed in the third epoch of its job."""
    own = {name: value for name, value in os.environ.items() if name != "WANDB_SERVICE"}
    done = subprocess.run([sys.executable, "-c", KILLED, str(job), *words], check=False, capture_output=True, env=own)
    return done.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_a_killed_offline_run_continues_as_one_run(tmp_path: Path) -> None:
    """The client loses what it has not written when it is killed; the history has it nevertheless."""
    options = [*SMALL, *LOGGED, "callbacks=default", "pictures=false", "optim.epochs=4", "logger.offline=true"]
    words = last_of_each([*options, f"hydra.run.dir={tmp_path / 'run'}"])
    with wandb_server() as server:
        assert killed_by_signal(words) and not server.runs
        assert main([f"resume={tmp_path / 'run'}"]) == 0
        assert not server.runs
        upload(tmp_path / "run")
        (one,) = server.runs.values()
    assert one.id == (tmp_path / "run" / "wandb_id.txt").read_text() and one.exit_code == 0
    drawn = history_of(one)
    steps = [row["_step"] for row in one.history]
    assert steps == list(range(19))
    assert [place for key, place in drawn if key == "train/batch_loss"] == list(range(8))
    assert [place for key, place in drawn if key == "val/accuracy"] == list(range(4))
    assert [place for key, place in drawn if key == "spectrum/output_residual_mean"] == [-1, 3]
    assert len(set(drawn)) == len(drawn)


@pytest.mark.slow
def test_a_killed_sweep_that_goes_on_is_three_whole_runs_and_one_comparison(tmp_path: Path) -> None:
    jobs = ("attention=mha,csp,identity", "seed=0", "encoder.depth=1", f"hydra.sweep.dir={tmp_path / 'sweep'}")
    words = ["-m", *last_of_each([*SMALL, *LOGGED, *jobs, "optim.epochs=3"])]
    with wandb_server() as server:
        assert killed_by_signal(words, job=2)
        begun = {run.id: run.starts for run in server.runs.values()}
        assert list(begun.values()) == [1, 1] and main(words) == 0
    trained, comparisons = server.runs_of("train"), server.runs_of("comparison")
    assert (len(trained), len(comparisons), len(server.runs)) == (3, 1, 4)
    named = {run.facts["displayName"] for run in trained}
    assert named == {f"{name}, seed 0 (digits)" for name in ("mha", "csp", "identity")}
    assert {run.facts["groupName"] for run in server.runs.values()} == {"sweep"}
    assert [server.runs[name].starts for name in begun] == [1, 2]
    for run in trained:
        assert run.exit_code == 0 and [row["_step"] for row in run.history] == list(range(13))
        drawn = history_of(run)
        assert [place for key, place in drawn if key == "train/batch_loss"] == list(range(6))
        assert [place for key, place in drawn if key == "val/accuracy"] == list(range(3))
        assert len(set(drawn)) == len(drawn)
    (summary,) = [run.summary for run in comparisons]
    assert {summary[f"comparison/{name}/n"] for name in ("mha", "csp", "identity")} == {1}


def test_a_workspace_that_cannot_be_saved_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    place = f"paths.outputs={tmp_path}"
    with wandb_server() as server:
        server.refusal = "project not found"
        said = refused("wandb", place, "entity=team", "project=lost")
    assert re.search(r"in team/lost \(.*project not found\); the project must exist", said)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(save, "server_answers", lambda: False)
    assert re.search("no key.*WANDB_API_KEY", refused("wandb", place))
    assert "did you mean entity" in refused("wandb", place, "entty=me")
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    with pytest.raises(LabError, match="does not answer: a workspace lives on the server"):
        save.save_on_server(WandbOptions(), tmp_path)
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    with pytest.raises(LabError, match=r"pip install 'sliceformer-lab\[dashboard\]'"):
        save.save_on_server(WandbOptions(), tmp_path)
    assert not list(tmp_path.rglob("*"))
