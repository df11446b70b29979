"""The results of many runs are on W&B: audits log their sentence, tables, numbers and figures."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from support.wandb_server import WandbServer, wandb_server
from support.written_runs import WrittenRuns
from test_audit import scores

from sliceformer_lab.__main__ import main
from sliceformer_lab.commands.compare import steps
from sliceformer_lab.commands.compare.compare_options import CompareOptions
from sliceformer_lab.commands.map import map_runs
from sliceformer_lab.commands.map.map_options import MapOptions
from sliceformer_lab.commands.wandb.logged_runs import logged_runs
from sliceformer_lab.commands.wandb.wandb_options import WandbOptions
from sliceformer_lab.config.compose import load_option
from sliceformer_lab.training.results.wandb_runs import ID_FILE


def audit(folder: Path) -> None:
    """Audits csp against no mixing and softmax attention, with runs that only write their results."""
    words = ("logger=wandb", f"paths.data={folder / 'data'}")
    options = CompareOptions(folder=str(folder), subject="csp", against=("identity", "mha"), seeds=6, words=words)
    steps.run_comparison("audit", options, WrittenRuns(scores))


def audit_twice(folder: Path) -> None:
    """An audit whose page is written twice."""
    audit(folder)
    audit(folder)


Write = Callable[[Path], None]
WriteOnce = Callable[[Write], tuple[Path, WandbServer]]


@pytest.fixture(scope="module")
def write_once(tmp_path_factory: pytest.TempPathFactory) -> WriteOnce:
    """The folder of a comparison and the server that has its results; each is made once, and no test changes it."""

    @cache
    def write_and_send(write: Write) -> tuple[Path, WandbServer]:
        folder = tmp_path_factory.mktemp("comparisons") / "mine"
        with wandb_server() as server:
            write(folder)
        return folder, server

    return write_and_send


def test_an_audit_is_one_run_with_its_sentence_tables_figures_and_numbers(write_once: WriteOnce) -> None:
    (run,) = write_once(audit_twice)[1].runs_of("audit")
    assert run.facts["displayName"] == "audit of csp (digits)" and run.facts["groupName"] == "mine"
    assert run.facts["tags"] == ["audit", "digits", "csp"]
    assert run.summary["verdict"] == run.facts["notes"] and "csp is better than identity" in run.summary["verdict"]
    assert {"comparison/verdicts", "comparison/rows_at_the_sizes_given", "pictures/differences"} <= run.logged
    assert "audit attention=csp against=identity" in run.config["command"]
    found = {name.removeprefix("comparison/"): value for name, value in run.summary.items() if "identity/own" in name}
    assert found["identity/own/n"] == 6 and found["identity/own/mean"] == pytest.approx(0.7, abs=0.01)
    assert found["identity/own/ci_low"] < 0.2 < found["identity/own/ci_high"] and found["identity/own/p_holm"] < 0.05


def tune(folder: Path) -> None:
    """Tunes csp, with runs that only write their results."""
    options = CompareOptions(folder=str(folder), subject="csp", against=(), seeds=3, words=("logger=wandb",))
    steps.run_comparison("tune", options, WrittenRuns(scores))


def map_probe(folder: Path) -> None:
    """Maps one probe, with runs that only write their results."""
    chosen = {"attentions": ("csp", "identity"), "probes": ("recall",), "rates": (3e-3,), "seeds": 2}
    map_runs.run_map(MapOptions(folder=str(folder), words=("logger=wandb",), **chosen), WrittenRuns(scores))


@pytest.mark.parametrize(("write", "page"), [(audit_twice, "audit"), (tune, "tune"), (map_probe, "map")])
def test_a_report_of_an_audit_a_search_and_a_map_is_their_page_with_panels_of_their_runs(
    write: Write, page: str, write_once: WriteOnce, tmp_path: Path
) -> None:
    made, server = write_once(write)
    folder = shutil.copytree(made, tmp_path / "mine")
    for run in (folder / "runs").glob("*/summary.json"):  # as if the runs had been logged
        (run.parent / ID_FILE).write_text(run.parent.name)
        logged = {**OmegaConf.load(run.parent / "config.yaml"), "logger": load_option("logger", "wandb")}
        OmegaConf.save(OmegaConf.create(logged), run.parent / "config.yaml")
    found = logged_runs(WandbOptions(folder=str(folder)))
    assert found.metric == "test/accuracy", "that of the reporting runs, not of the trials"
    assert (found.baseline or "").startswith("report-mha-") == (write is audit_twice)
    with wandb_server() as asked:
        assert main(["wandb", "report", str(folder), f"paths.outputs={tmp_path}"]) == 0
    (sent,) = asked.views
    title, *parts = (folder / "report" / f"{page}.md").read_text().split("\n\n")
    assert sent["displayName"] == title.lstrip("# ")[:128]
    blocks = json.loads(sent["spec"])["blocks"]
    (text,) = [block["content"] for block in blocks if block["type"] == "markdown-block"]
    assert text == "\n\n".join(part for part in parts if not part.startswith("![")) and "csp" in text
    first, *_ = [block["metadata"] for block in blocks if block["type"] == "panel-grid"]
    (results,) = [run.facts["jobType"] for run in server.runs.values()]
    of_results = json.dumps(first["runSets"][-1])
    assert results in of_results and "mine" in of_results and "csp" in [one["name"] for one in first["runSets"]]
    shown = {key for run in server.runs.values() for key in run.logged if key.startswith("pictures/")}
    assert shown and all(json.dumps(key) in json.dumps(first["panelBankSectionConfig"]) for key in shown)


def test_a_server_in_trouble_does_not_end_an_audit(tmp_path: Path) -> None:
    with wandb_server() as server:
        server.fails = lambda place: 401
        audit(tmp_path / "audit")
    assert (tmp_path / "audit" / "report" / "audit.md").is_file() and not server.runs
    assert list((tmp_path / "audit" / ".wandb").glob("offline-run-*"))


def test_a_map_is_one_run_with_its_sentences_table_picture_and_scores(write_once: WriteOnce) -> None:
    (run,) = write_once(map_probe)[1].runs_of("probe")
    assert run.facts["displayName"] == "map of csp, identity" and run.facts["tags"] == ["probe", "recall"]
    assert run.summary["verdict"].startswith("csp solves in part recall (.8") and run.exit_code == 0
    assert run.summary["map/csp/recall/n"] == 2 and run.summary["map/csp/recall/mean"] == pytest.approx(0.89, abs=0.01)
    assert run.table("map/scores")[0][""] == "csp" and len(run.table("map/runs")) == 2
    assert "pictures/map" in run.logged and run.config["command"].startswith("python -m sliceformer_lab map ")


@pytest.mark.usefixtures("in_this_process")
def test_a_benchmark_is_one_run_with_its_rows_and_ratios(tmp_path: Path) -> None:
    quick = ("suite=operators", "sizes=[6]", "rounds=2", "warmup=1", "batch=1", f"paths.outputs={tmp_path}")
    with wandb_server() as server:
        assert main(["benchmark", "logger=wandb", *quick]) == 0
    (run,) = server.runs_of("bench")
    assert run.facts["displayName"] == "benchmark of operators (cpu)" and run.config["rounds"] == 2
    rows = run.table("benchmark/rows")
    measured = next(row for row in rows if row["name"] == "copy")
    key = f"benchmark/{measured['workload']}/copy/6/{measured['mode']}/seconds"
    assert run.summary[key] == measured["seconds"] > 0
