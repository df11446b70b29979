"""Studies run all rows of a table at any scale, continue after a stop, and end with a report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.endings import train_in_turn
from support.plans import build_data, run
from support.run_folders import read_summary, summary_of, write_run
from support.runs import small_config
from support.studies import rows_of_study

from sliceformer_lab.commands.report import write_report
from sliceformer_lab.commands.report.report_options import ReportOptions
from sliceformer_lab.commands.report.tables import frame, latex, markdown
from sliceformer_lab.config.compose import CONF_DIR, compose_job, option_names, with_conf_folders, written_option
from sliceformer_lab.errors import Interrupted, RunFolderError
from sliceformer_lab.runs.collect import Collection, collect
from sliceformer_lab.runs.papers import find_obstacles, find_published, recipe_rows
from sliceformer_lab.sweeps.plan import plan_sweep
from sliceformer_lab.training.optim import OptimOptions

OF_OUR_STUDIES = CONF_DIR.parent / "studies" / "conf"
REVIEWS = sorted(file.stem for file in OF_OUR_STUDIES.glob("study/csp_reviews/*.yaml"))
TABLES = {name: (name.replace("_", "/", 1) + "_",) for name in option_names("study") if not name.startswith("controls")}
TABLES["csp_table4"] = ("csp/table4",)  # both halves
ADDED = {  # MEGA with CSP, which CSP's Table 7 has
    "csp_table4": {
        *(f"recipe=csp/table4b_lra_{task} attention=csp_complete" for task in ("listops", "text", "retrieval")),
        "recipe=csp/table4b_lra_image attention=csp_shift_only",
        *(f"recipe=csp/table4b_lra_{task} attention=csp" for task in ("pathfinder", "pathx")),
    },
}
NO_TABLE = {"sliceformer/text_imagenet1k"}  # one number in the running text
MHA = ("study=csp_table1", "attention=mha")
Lab = Callable[..., int]


def commands(recipes: set[str]) -> set[str]:
    return {f"recipe={recipe} {words}" for recipe in recipes for words in recipe_rows(recipe)}


@pytest.mark.parametrize("study", TABLES)
def test_study_is_every_row_of_its_table_and_says_so(study: str) -> None:
    of_table = {name for name in option_names("recipe") if name.startswith(TABLES[study])}
    listed = rows_of_study(study)
    assert of_table and set(listed) == commands(of_table) | ADDED.get(study, set())
    assert len(listed) == len(set(listed))
    text = (CONF_DIR / "study" / f"{study}.yaml").read_text(encoding="utf-8")
    assert f"({len(listed)} runs)" in text.splitlines()[1] and "# Recipe: " in text and "Left out: " in text
    assert all(len(line) <= 120 for line in text.splitlines())


def test_every_published_setting_is_part_of_a_study() -> None:
    listed = {row for study in TABLES for row in rows_of_study(study)}
    of_papers = {name for name in option_names("recipe") if name.startswith(("sliceformer/", "csp/", "samsa/"))}
    assert listed == commands(of_papers - NO_TABLE) | ADDED["csp_table4"]


@pytest.mark.parametrize("name", [*REVIEWS[:2], *(pytest.param(name, marks=pytest.mark.slow) for name in REVIEWS[2:])])
def test_jobs_of_a_preset_for_the_reviews_compose_and_are_counted(name: str) -> None:
    study = f"csp_reviews/{name}"
    line = (OF_OUR_STUDIES / "study" / f"{study}.yaml").read_text(encoding="utf-8").splitlines()[1]
    with with_conf_folders([OF_OUR_STUDIES]):
        jobs = plan_sweep([f"study={study}"], multirun=True)
        assert jobs and f" {len(jobs.jobs)} runs" in line  # it has composed one job of each kind
        compose_job(list(jobs.jobs[-1].words))
    page = (Path(__file__).parents[2] / "studies" / "reviews.md").read_text(encoding="utf-8")
    question = int(study.removeprefix("csp_reviews/q")[:2])
    assert any(row.startswith(f"| {question} | ") and f"`study={study}`" in row for row in page.splitlines())


def test_full_scale_changes_nothing_and_the_command_line_wins_over_any() -> None:
    words = ["recipe=csp/table4b_lra_image", "attention=mega"]  # which sets data.batch_size, as the small scale does
    plain, full = compose_job(words), compose_job([*words, "scale=full"])
    assert plain == full and plain["data"]["batch_size"] == 50
    small = compose_job([*words, "scale=small", "data.batch_size=3", "optim.epochs=10", "encoder.dim=64"])
    assert small["data"]["batch_size"] == 3
    assert (small["optim"]["epochs"], small["optim"]["max_steps"], small["encoder"]["dim"]) == (10, 100, 64)


def test_no_recipe_sets_an_option_that_the_small_scale_would_put_back() -> None:
    """Where scale/small has no value and no default for a task, it takes the one of the task, not the recipe's."""
    small = written_option("scale", "small")["data"]
    for name in option_names("recipe"):
        written = written_option("recipe", name)
        task = next(word["override /task"] for word in written["defaults"] if "override /task" in word)
        for key in set(written.get("data", {})) & set(small):
            assert f"{task}:" in small[key] or not small[key].endswith("}}"), (name, key)


def test_a_task_without_sizes_at_a_scale_is_refused_in_one_sentence(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = tmp_path / "task" / "mine.yaml"
    task.parent.mkdir()
    task.write_text("# @package _global_\ndefaults:\n  - digits\n")
    for words in (["--config-dir", str(tmp_path), "task=mine"], ["data.limit_train=???"]):
        assert lab("scale=small", *words) == 1
        name = "mine" if "task=mine" in words else "digits"
        assert capsys.readouterr().err == (
            f"sliceformer-lab: scale=small: task={name} has no sizes at this scale; "
            "write them in conf/scale/small.yaml\n"
        )


@pytest.mark.parametrize(
    "options",
    [
        {"schedule": "cosine", "interval": "epoch"},
        {"schedule": "cosine", "interval": "step", "warmup_steps": 24500},
        {"schedule": "cosine", "interval": "step", "warmup_steps": "untuned"},
        {"schedule": "linear", "interval": "step", "epochs": None, "steps": 90_000, "warmup_steps": 50_000},
        {
            "schedule": "linear",
            "cycle": "official",
            "horizon": 91_960,
            "interval": "step",
            "epochs": None,
            "steps": 900,
        },
    ],
    ids=str,
)
def test_a_shortened_recipe_is_rescaled(options: dict[str, Any]) -> None:
    factor = OptimOptions(**options, max_steps=100).rate_factor(10_000)
    rates = [factor(step) for step in range(100)]
    top = int(np.argmax(rates))
    assert max(rates) == pytest.approx(1, abs=0.02) and top <= 10
    assert rates[99] < 0.05 and all(np.diff(rates[top:]) <= 0)


def test_limits_sample_scored_examples_by_split_seed_and_keep_the_first_training_examples() -> None:
    whole, cut, again, other = (
        build_data(small_config("data.limit_train=10", *more))
        for more in ([], ["data.limit_eval=20"], ["data.limit_eval=20", "seed=1"], ["data.limit_eval=21"])
    )
    for data in (whole, cut, again, other):
        data.setup()
    assert cut.sizes() == {"num_train": 10, "num_val": 20, "num_test": 20}
    assert np.array_equal(cut.splits["train"].rows, whole.splits["train"].rows)
    for stage in ("val", "test"):
        sampled, everything = cut.splits[stage].rows.tolist(), whole.splits[stage].rows.tolist()
        assert set(sampled) <= set(everything) and sampled != everything[:20], "files often go by class"
        assert sampled == again.splits[stage].rows.tolist()
    assert other.sizes()["num_test"] == 21


def test_a_small_run_ends_at_its_steps_and_records_what_it_was(tmp_path: Path) -> None:
    published = {"paper": "csp", "table": "table1", "task": "cifar10", "attention": "mha", "metric": "test/accuracy"}
    cut = ("data.limit_train=64", "data.batch_size=16", "data.limit_eval=20", "optim.max_steps=5", "optim.epochs=9")
    run(small_config("scale=small", *cut), tmp_path / "run")
    summary = read_summary(tmp_path / "run")
    assert (summary["scale"], summary["study"]) == ("small", None)
    protocol = summary["protocol"]
    assert (protocol["epochs"], protocol["steps"], protocol["num_val"], protocol["num_test"]) == (None, 5, 20, 20)
    assert (protocol["limit_train"], protocol["limit_val"], protocol["limit_test"]) == (64, 20, 20)
    reasons = find_obstacles(summary_of(summary), find_published(published))
    assert reasons[0].startswith("scale=small: ") and "5 steps, the paper 100 epochs" in reasons


def test_report_keeps_scales_apart_and_names_them_in_every_format(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "csp", accuracy=0.9)
    write_run(tmp_path / "b", "csp", accuracy=0.5, scale="small")
    write_run(tmp_path / "c", "csp", seed=1, accuracy=None, scale="small")
    found, sections = write_report.read_sections(ReportOptions(folder=str(tmp_path)))
    full, small = (table.title for table, _ in sections)
    assert "scale" not in full and small.startswith("digits, scale small: ")
    assert [len(table.rows[0].runs) for table, _ in sections] == [1, 2], "a run that failed goes with its scale"
    text = markdown(found, sections)
    assert text.startswith(f"# Runs below {tmp_path.name}, scale full and small\n") and f"## {small}" in text
    assert "digits, scale small: " in latex(sections)
    assert list(frame(sections)["scale"]) == ["full", "small"]


def test_a_killed_study_continues_with_the_missing_jobs_and_ends_with_a_report(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("study=csp_table1", "scale=small", "data.root=unused", "hydra.sweep.dir=sweep")
    trained = train_in_turn(monkeypatch, None, Interrupted("stopped", 15), RuntimeError("no data"), None)
    assert lab(*words) == 143
    assert not (tmp_path / "sweep" / "report").exists(), "a stopped study ends without a report"
    found = collect(tmp_path / "sweep")
    assert {run.status for run in found.runs} == {"ok", "interrupted"}
    (missing,) = found.missing
    assert missing.job == 2 and "attention=csp_unit_shift" in missing.overrides
    assert {run.summary.study for run in found.runs} == {"csp_table1"}
    out = capsys.readouterr().out
    assert "study csp_table1 at scale small: 3 jobs" in out and "the same command goes on" in out

    assert lab(*words) == 1
    attentions = [config["names"]["attention"] for config in trained]
    assert attentions == ["mha", "csp_head_block", "csp_head_block", "csp_unit_shift"]
    out = capsys.readouterr().out
    assert "(1 ok, 1 interrupted)" in out and "failed  RuntimeError: no data" in out
    assert str(tmp_path / "sweep" / "report" / "report.html") in out
    assert "no data" in (tmp_path / "sweep" / "report" / "report.md").read_text(encoding="utf-8")
    found = collect(tmp_path / "sweep")
    assert sorted(run.status for run in found.runs) == ["failed", "ok", "ok"] and not found.missing


def test_a_folder_of_another_sweep_is_refused(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (*MHA, "data.root=unused", "hydra.sweep.dir=sweep")
    trained = train_in_turn(monkeypatch, None)
    assert lab(*words) == 0
    assert lab(*words, "trainer.benchmark=true") == 0 and len(trained) == 1, "this cannot change a result"
    for other in ("seed=1", "trainer.limit_train_batches=0.1", "trainer.precision=bf16-mixed", "callbacks=ema"):
        assert lab(*words, other) == 1
        err = capsys.readouterr().err
        assert "holds another sweep, of 1 job," in err and "choose another hydra.sweep.dir" in err


def test_a_folder_with_results_of_another_table_is_refused(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("task=text_csv", "data.file=table.csv", "seed=0,1", "hydra.sweep.dir=sweep")
    trained = train_in_turn(monkeypatch, None, None)
    for code, labels in enumerate((("pos", "neg"), ("neg", "pos"))):
        rows = "".join(f"text {number},{labels[number % 2]}\n" for number in range(40))
        (tmp_path / "table.csv").write_text(f"text,label\n{rows}")
        assert lab("-m", *words) == code
    assert len(trained) == 2
    assert "sweep holds a sweep of other data (" in capsys.readouterr().err


def test_the_command_line_replaces_what_a_study_sweeps_and_selects_rows(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = train_in_turn(monkeypatch, *[None] * 6)
    assert lab("study=controls_digits", "attention=csp", "seed=3,4") == 0
    assert [(config["names"]["attention"], config["seed"]) for config in trained] == [("csp", 3), ("csp", 4)]
    two = ("recipe=csp/table3_cifar10", "attention=csp_shift_only,csp_sort_only")
    assert lab("study=csp_table3", *two, "data.root=unused", "scale=small") == 0
    assert [config["names"]["attention"] for config in trained[2:]] == ["csp_shift_only", "csp_sort_only"]
    both = ("recipe=csp/table3_cifar10,csp/table3_cifar100", "attention=csp", "data.root=unused")
    assert lab("study=csp_table3", *both) == 0
    jobs = [(config["names"]["recipe"], config["names"]["attention"]) for config in trained[4:]]
    assert jobs == [(f"csp/table3_{task}", "csp") for task in ("cifar10", "cifar100")]
    names = sorted(folder.name for folder in (tmp_path / "outputs" / "sweeps").iterdir())
    assert [name.rpartition("-")[0] for name in names] == ["controls_digits", "csp_table3", "csp_table3"]


def test_a_report_that_fails_is_one_sentence_after_the_jobs(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train_in_turn(monkeypatch, None)
    monkeypatch.setattr(write_report, "collect", refuse_to_read)
    assert lab(*MHA, "data.root=unused") == 1
    assert capsys.readouterr().err == "sliceformer-lab: the disk is gone\n"


def refuse_to_read(folder: Path) -> Collection:
    raise RunFolderError("the disk is gone")


def test_rows_with_options_are_jobs_of_their_own_and_the_command_line_replaces_their_options(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = train_in_turn(monkeypatch, *[None] * 6)
    words = ("study=samsa_table1", "recipe=samsa/table1_modelnet40", "attention=samsa", "data.root=unused")
    assert lab(*words) == 0
    assert [config["attention"]["sample_size"] for config in trained] == [128, 256, 512]
    assert [config["published"]["variant"] for config in trained] == ["k=128,hard", "k=256,hard", "k=512,hard"]
    assert lab(*words, "attention.sample_size=64") == 0
    assert {(config["attention"]["sample_size"], config["published"]) for config in trained[3:]} == {(64, None)}
