"""A report includes every run below a folder, compares comparable runs, and tests no more than they support."""

from __future__ import annotations

import json
import re
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from PIL import Image
from scipy.stats import ttest_rel
from support.run_folders import write_predictions, write_run, write_runs

from sliceformer_lab.__main__ import main
from sliceformer_lab.commands.report.lines import Line
from sliceformer_lab.commands.report.report_options import ReportOptions
from sliceformer_lab.commands.report.table_cells import Section, references_in
from sliceformer_lab.commands.report.tables import frame, latex, markdown
from sliceformer_lab.commands.report.write_report import read_sections
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.config.sweep_size import split_jobs
from sliceformer_lab.runs.collect import collect
from sliceformer_lab.runs.folder import SUMMARY, lock_folder
from sliceformer_lab.runs.papers import find_published, published_results
from sliceformer_lab.runs.sweep import PlannedJob, Sweep, write_sweep

GOOD = (0.90, 0.91, 0.92, 0.93, 0.94, 0.95)
WORSE = tuple(value - 0.02 + 0.004 * (-1) ** place for place, value in enumerate(GOOD))


def report(folder: Path, **options: Any) -> list[Section]:
    return read_sections(ReportOptions(folder=str(folder), **options))[1]


def by_label(folder: Path, **options: Any) -> dict[str, Line]:
    """The lines of the only table, by attention and options."""
    ((_, found),) = report(folder, **options)
    return {" ".join([line.row.label, *map(str, line.row.factors)]): line for line in found}


def text(folder: Path, **options: Any) -> str:
    return markdown(*read_sections(ReportOptions(folder=str(folder), **options)))


def write_planned(folder: Path, overrides: list[str]) -> None:
    """The plan of a sweep over attentions and more, whose jobs are NUMBER-digits-ATTENTION-abc."""
    jobs = split_jobs(OverridesParser.create().parse_overrides(overrides))
    names = [f"{number}-digits-{words[0].partition('=')[2]}-abc" for number, words in enumerate(jobs)]
    planned = [PlannedJob(name, tuple(words)) for name, words in zip(names, jobs, strict=True)]
    write_sweep(Sweep(folder, tuple(planned)))


def test_every_way_to_end_is_shown_and_failures_count_at_chance(tmp_path: Path) -> None:
    write_runs(tmp_path, "csp", 0.9, None, 0.8)
    write_run(tmp_path / "d", "csp", 3, None, status="diverged", error="DivergedError: loss is nan\nmore")
    write_run(tmp_path / "i", "csp", 4, 0.99, status="interrupted")  # resumed after it had ended, and stopped
    write_run(tmp_path / "k", "csp", 5, None, status="running")
    (write_run(tmp_path / "none") / SUMMARY).unlink()
    line = by_label(tmp_path)["csp"]
    assert line.statuses == {"ok": 2, "failed": 1, "diverged": 1, "interrupted": 1, "killed": 1}
    assert (len(line.values), line.planned) == (2, 6)
    assert line.mean == pytest.approx(0.85)
    assert line.mean_with_failures == pytest.approx((0.9 + 0.8 + 0.1 + 0.1) / 4)
    loss = by_label(tmp_path, metric="test/loss")["csp"]
    assert loss.mean_with_failures is None and "no run of this table records the chance of test/loss" in loss.notes[-1]
    page = text(tmp_path)
    assert "2 of 6: 1 failed, 1 diverged, 1 interrupted, 1 killed" in page
    assert "seed 3 diverged (DivergedError: loss is nan): d" in page
    assert "6 runs: 2 ok, 1 diverged, 1 failed, 1 interrupted, 1 killed, 1 unreadable." in page


def test_a_terminal_without_a_sign_shows_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "a", "csp")
    write_run(tmp_path / "b", "mha")
    shown = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(shown, encoding="ascii"))
    assert main(["report", str(tmp_path)]) == 0
    sys.stdout.flush()
    assert r"(1.00 \xd7)" in shown.getvalue().decode("ascii")


def test_a_run_that_a_live_process_holds_is_running(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", accuracy=None, status="running")
    with lock_folder(folder):
        assert [run.status for run in collect(tmp_path).runs] == ["running"]
    assert [run.status for run in collect(tmp_path).runs] == ["killed"]


def test_runs_in_a_linked_folder_count_once(tmp_path: Path) -> None:
    write_runs(tmp_path / "disk" / "b", "csp", 0.9, 0.8)
    write_runs(tmp_path / "outputs" / "a", "mha", 0.7)
    for link, target in {"Latest": "outputs/a", "b": "disk/b", "c": "disk", "a/up": "outputs"}.items():
        (tmp_path / "outputs" / link).symlink_to(tmp_path / target)
    (tmp_path / "all").symlink_to(tmp_path / "outputs")
    for folder in ("outputs", "all"):
        assert [run.name for run in collect(tmp_path / folder).runs] == ["a/mha-a-0", "b/csp-b-0", "b/csp-b-1"]


def test_jobs_that_a_sweep_planned_and_that_left_nothing_are_missing(tmp_path: Path) -> None:
    sweep = tmp_path / "sweeps" / "one"
    write_planned(sweep, ["attention=csp,mha", "seed=0,1,2"])
    for job, (attention, seed) in enumerate([("csp", 0), ("csp", 1)]):
        write_run(sweep / f"{job}-digits-{attention}-abc", attention, seed)
    found = collect(tmp_path)
    assert [job.job for job in found.missing] == [2, 3, 4, 5]
    line = by_label(tmp_path)["csp"]
    assert (len(line.values), line.planned, line.statuses["missing"]) == (2, 3, 1)
    page = text(tmp_path)
    assert "csp: planned, but left no readable run: sweeps/one, job 2: attention=csp seed=2" in page
    assert page.count("planned, but left no readable run: sweeps/one") == 4


def test_of_two_runs_with_one_seed_the_latest_that_ended_well_counts(tmp_path: Path) -> None:
    write_run(tmp_path / "b", seed=0, accuracy=0.7, started="2026-01-01T00:00:00")
    write_run(tmp_path / "a", seed=0, accuracy=0.8, started="2026-01-02T00:00:00")
    write_run(tmp_path / "c", seed=0, accuracy=None, started="2026-01-03T00:00:00")
    write_run(tmp_path / "d", seed=0, accuracy=0.6, options={"data.split_seed": 1}, split_seed=1)
    line = by_label(tmp_path)["csp"]
    assert sorted(line.values.values()) == [0.6, 0.8]
    assert "seed 0 was run again: a counts, b does not (another result, 70.00)" in line.notes
    assert "seed 0 was run again: a counts, c does not (failed)" in line.notes
    assert line.mean_with_failures is None
    write_run(tmp_path / "e", seed=5, git_commit="feed1")
    notes = by_label(tmp_path)["csp"].notes
    assert [note[-7:] for note in notes if "different versions of the code" in note] == [", feed1"]
    assert not any("different versions" in note for note in line.notes)


def test_the_latest_of_two_runs_is_known_across_time_zones(tmp_path: Path) -> None:
    write_run(tmp_path / "laptop", seed=0, accuracy=0.8, started="2026-11-27T09:00:00+09:00")  # 0:00 in UTC
    write_run(tmp_path / "cluster", seed=0, accuracy=0.9, started="2026-11-27T04:00:00+00:00")
    write_run(tmp_path / "unknown", seed=0, accuracy=0.1, started="yesterday")
    line = by_label(tmp_path)["csp"]
    assert list(line.values.values()) == [0.9]


def test_runs_that_differ_in_a_relevant_option_are_different_rows(tmp_path: Path) -> None:
    write_runs(tmp_path, "csp", 0.9, 0.9)
    write_run(
        tmp_path / "moved", seed=2, options={"data.root": "x", "trainer.accelerator": "cuda", "encoder.depth": 4.0}
    )
    write_run(tmp_path / "deep", options={"encoder.depth": 8, "attention.group_size": None})
    write_run(tmp_path / "mha", "mha", options={"attention.heads": 4})
    found = by_label(tmp_path)
    assert set(found) == {"csp", "csp attention.group_size=null encoder.depth=8", "mha"}
    assert len(found["csp"].values) == 3
    assert "Unless a row says otherwise: encoder.depth=4." in text(tmp_path)


def test_the_row_without_options_has_the_defaults_although_more_runs_have_another_value(tmp_path: Path) -> None:
    write_runs(tmp_path, "csp", 0.90, 0.90, options={"attention.group_size": 2})
    write_runs(tmp_path / "four", "csp", *[0.95] * 5, options={"attention.group_size": 4})
    write_runs(tmp_path / "deep", "csp", 0.80, 0.80, options={"encoder.depth": 8})
    found = by_label(tmp_path)
    assert list(found) == ["csp attention.group_size=4", "csp", "csp encoder.depth=8"], "best first"
    assert "Rows are ordered by their mean over seeds, best first, or with `by=` by attention" in text(tmp_path)
    assert [line.test and line.test.against for line in found.values()] == ["csp", None, "csp"]
    by = by_label(tmp_path, by="attention.group_size")
    assert [line.test and line.test.against for label, line in by.items() if "depth" not in label] == [None, "csp 2"]


def test_tables_are_of_one_data_set_and_protocol(tmp_path: Path) -> None:
    write_runs(tmp_path, "csp", 0.9)
    write_run(tmp_path / "other_data", protocol={"sha256": "other", "official": False})
    write_run(tmp_path / "own_data", protocol={"data": "mine", "sha256": "mine", "official": None})
    write_run(tmp_path / "other_rule", protocol={"selection": "last"})
    write_run(tmp_path / "trial", options={"trainer.fast_dev_run": True})
    write_run(tmp_path / "memorised", options={"trainer.overfit_batches": 2})
    write_run(tmp_path / "failed", "mha", accuracy=None, options={"data.batch_size": 8})
    write_run(tmp_path / "lost", "mha", accuracy=None, task="mnist")
    found = report(tmp_path)
    assert len(found) == 7
    titles = {table.title: sorted(line.row.attention for line in rows) for table, rows in found}
    assert titles["digits: digits, 1,199 train, 299 val, 299 test, epoch by best_val"] == ["csp", "mha"]
    assert titles["digits: mine, 1,199 train, 299 val, 299 test, epoch by best_val"] == ["csp"]
    assert titles["mnist: no run has finished"] == ["mha"]
    assert sum("a trial of a few batches" in title for title in titles) == 2
    assert sum("not the official set" in title for title in titles) == 1


def test_each_fact_that_decides_a_score_has_tables_of_its_own(tmp_path: Path) -> None:
    write_run(tmp_path / "usual")
    for name in ("limit_train", "limit_val", "limit_train_batches", "limit_val_batches", "num_val", "data", "official"):
        write_run(tmp_path / name, protocol={name: {"data": "other", "official": False}.get(name, 9)})
    write_run(tmp_path / "share", options={"data.val_fraction": 0.3})
    write_run(tmp_path / "small", scale="small")
    write_run(tmp_path / "trial", protocol={"score_test": False}, metrics={"val/accuracy": 0.8})
    found = report(tmp_path)
    assert len(found) == 11 and all(len(line.row.runs) == 1 for _, rows in found for line in rows)
    assert sum(table.metric == "val/accuracy" for table, _ in found) == 1


@pytest.mark.parametrize(("limit", "shown"), [(None, "43 to 44"), (20, "20")])
def test_folds_that_differ_in_size_are_rows_of_one_table(limit: int | None, shown: str, tmp_path: Path) -> None:
    for split, (train, test, accuracy) in enumerate([(43, 14, 0.7), (44, 13, 0.9), (43, 14, 0.8)]):
        sizes = {"num_train": limit or train, "num_val": 10, "num_test": test}
        fold = {"data.split_seed": split, "data.test_fraction": 0.2, "data.limit_train": limit}
        write_run(tmp_path / f"{split}", accuracy=accuracy, protocol=sizes, options=fold, split_seed=split)
    ((table, (line,)),) = report(tmp_path)
    assert f"{shown} train, 10 val, 13 to 14 test" in table.title
    assert line.mean == pytest.approx(0.8) and len(line.values) == 3
    larger = {"data.split_seed": 0, "data.test_fraction": 0.5}
    write_run(
        tmp_path / "half", accuracy=0.5, protocol={"num_train": 28, "num_val": 10, "num_test": 29}, options=larger
    )
    assert len(report(tmp_path)) == 2, "another share is another test"


def test_folds_are_one_row_whatever_was_chosen_from_their_examples(tmp_path: Path) -> None:
    chosen = [{"option": option, "value": 0, "reason": "few"} for option in ("optim.epochs", "trainer.precision")]
    for attention, choices in {"csp": chosen, "mha": []}.items():
        for split, epochs in enumerate((20, 20, 21)):
            fold = {"data.split_seed": split, "data.test_fraction": 0.2, "optim.epochs": epochs}
            folder = tmp_path / f"{attention}{split}"
            write_run(folder, attention, options=fold, split_seed=split, choices=choices)
    ((_, rows),) = report(tmp_path)
    found = {line.row.label: sorted(line.values) for line in rows}
    assert found == {"csp": [(0, 0), (0, 1), (0, 2)], "mha": [(0, 0), (0, 1)], "mha optim.epochs=21": [(0, 2)]}
    assert len(by_label(tmp_path, by="optim.epochs")) == 4, "a column of epochs has those of each fold"
    write_run(tmp_path / "later", options=fold | {"optim.epochs": 30}, split_seed=2, choices=chosen)
    assert "csp optim.epochs=30" in by_label(tmp_path), "another choice for the same fold is another setting"
    elsewhere = {"trainer.precision": "bf16-mixed", "data.split_seed": 3, "optim.epochs": 20}
    write_run(tmp_path / "elsewhere", options=fold | elsewhere, split_seed=3, choices=chosen)
    assert any("precision=bf16-mixed" in label for label in by_label(tmp_path)), "of another processor, not of the fold"


def test_runs_without_a_result_are_a_line_for_each_data_set_that_names_it_and_the_reasons(tmp_path: Path) -> None:
    write_runs(tmp_path, "csp", 0.9)
    for name in ("cats", "dogs"):
        options = {"data.name": None, "data.root": f"pictures/{name}"}
        write_runs(tmp_path / name, "csp", None, None, task="image_folder", options=options)
    diverged = {"status": "diverged", "error": "DivergedError: loss is nan\nmore"}
    write_run(tmp_path / "cats" / "lost", "mha", 0, None, task="image_folder", options=options, **diverged)
    page = text(tmp_path)
    assert "- image\\_folder: cats" not in page and page.count("\n## ") == 2
    assert "- image_folder: cats, no run has finished (2 failed): 2 x RuntimeError: out of luck" in page
    assert (
        "- image_folder: dogs, no run has finished (2 failed, 1 diverged): "
        "2 x RuntimeError: out of luck; DivergedError: loss is nan" in page
    )
    assert latex(report(tmp_path)).count("begin{tabular}") == 1 and len(frame(report(tmp_path))) == 4


def test_runs_of_other_data_are_in_tables_of_their_own(tmp_path: Path) -> None:
    for name in ("real", "permuted"):
        own = {"data": "train", "sha256": f"{name:x<64}", "official": None}
        sources = {f"/{name}/train.csv": name}
        write_run(tmp_path / name, protocol=own, sources=sources)
        write_run(tmp_path / f"{name} failed", "mha", accuracy=None, sources=sources)
    titles = {table.title: sorted(line.row.attention for line in rows) for table, rows in report(tmp_path)}
    title = "digits: train, 1,199 train, 299 val, 299 test, epoch by best_val, data"
    assert titles == {f"{title} {digest}": ["csp", "mha"] for digest in ("realxxxx", "permuted")}


def test_a_run_that_began_on_other_data_is_in_a_table_of_its_own(tmp_path: Path) -> None:
    for name, changed in (("plain", []), ("tested", ["test"]), ("mixed", ["train", "test"])):
        write_run(tmp_path / name, name, starts=[{}, {"changed_data": changed}])
    titles = {table.title: sorted(line.row.attention for line in rows) for table, rows in report(tmp_path)}
    title = "digits: digits, 1,199 train, 299 val, 299 test, epoch by best_val"
    assert titles == {title: ["plain", "tested"], f"{title}, begun on other data": ["mixed"]}


def test_a_title_says_that_epochs_had_a_part_of_the_batches(tmp_path: Path) -> None:
    limits = {"trainer.limit_train_batches": 3, "trainer.limit_val_batches": 0.25}
    write_run(tmp_path / "part", options=limits, protocol={"limit_train_batches": 3, "limit_val_batches": 0.25})
    write_run(tmp_path / "all", options=dict.fromkeys(limits, 1.0))
    sizes, rest = "digits: digits, 1,199 train, 299 val, 299 test", ", epoch by best_val"
    part = f"{sizes}, at most 3 training batches, only 0.25 of the validation batches{rest}"
    assert {table.title for table, _ in report(tmp_path)} == {f"{sizes}{rest}", part}


@pytest.mark.parametrize(
    "named", [("encoder.init_file", "data.tokenizer_folder"), ("data.tokenizer_folder",), ("pretrain.path",)]
)
def test_runs_from_other_pretrained_weights_or_with_other_tokenizers_are_rows_of_one_table(
    named: tuple[str, ...], tmp_path: Path
) -> None:
    for seed, (folder, digest) in enumerate([("here", "a" * 64), ("moved", "a" * 64), ("later", "b" * 64)]):
        sources = {"/table.csv": "t" * 64, f"/{folder}/model": digest}
        write_run(tmp_path / folder, seed=seed, options=dict.fromkeys(named, f"/{folder}/model"), sources=sources)
    [(_, lines)] = report(tmp_path)
    shown = {line.row.label: len(line.row.runs) for line in lines}
    assert shown == {"csp": 2, f"csp {named[0]}=bbbbbbbb": 1}


def test_hybrids_are_rows_by_their_pattern_and_by_what_the_options_of_its_attentions_were(tmp_path: Path) -> None:
    for accuracy, pattern, options in (
        (0.9, ["csp", "mha"], {"csp.group_size": 8, "mha.rope": False}),
        (0.8, ["csp", "mha"], {"csp.group_size": 4, "mha.rope": False}),
        (0.7, ["local", "mha"], {"local.window": 16, "mha.rope": False}),
        (0.6, ["local", "mha"], {"local.window": 16, "mha.rope": False}),
    ):
        members = {f"attention.options.{name}": value for name, value in options.items()}
        accuracies = [accuracy, accuracy] if accuracy == 0.9 else [accuracy]
        write_runs(tmp_path / str(accuracy), "hybrid", *accuracies, options={"attention.pattern": pattern} | members)
    local, csp = 'hybrid attention.pattern=["local", "mha"]', "hybrid"
    found = by_label(tmp_path)
    assert {label.strip(): len(line.row.runs) for label, line in found.items()} == {
        csp: 2,
        f"{csp} attention.options.csp.group_size=4": 1,
        local: 1,
    }
    ((table, _),) = report(tmp_path, by="attention.pattern")
    rows = {(row.label, row.options["attention.pattern"][0]): row for row in table.rows}
    assert table.opponent(rows["hybrid", "local"], "mha") is rows["hybrid", "csp"]


def test_pairs_are_tested_by_student_s_test_from_three_on(tmp_path: Path) -> None:
    write_runs(tmp_path, "mha", *GOOD)
    write_runs(tmp_path, "csp", *WORSE)
    write_runs(tmp_path, "samsa", *WORSE[:2])
    found = by_label(tmp_path)
    csp, samsa = found["csp"].test, found["samsa"].test
    assert found["mha"].test is None
    assert (csp.against, csp.pairs, csp.verdict) == ("mha", 6, "significant")
    assert csp.p == pytest.approx(ttest_rel(WORSE, GOOD).pvalue) and csp.difference == pytest.approx(-0.02)
    assert 0.003 < csp.smallest < 0.02
    assert (samsa.pairs, samsa.p, samsa.verdict) == (2, None, "not tested: 2 pairs (needs 3)")
    write_runs(tmp_path, "identity", *WORSE)
    both = by_label(tmp_path)["csp"].test
    assert both.p == pytest.approx(2 * csp.p), "Holm's correction"
    assert both.smallest == csp.estimate.detectable(2) > csp.smallest, "of two rows"


def test_no_difference_is_called_detectable_where_all_pairs_differ_by_the_same(tmp_path: Path) -> None:
    write_runs(tmp_path, "mha", *GOOD)
    write_runs(tmp_path, "csp", *GOOD)
    test = by_label(tmp_path)["csp"].test
    assert (test.difference, test.p, test.smallest) == (0.0, None, None)
    assert test.verdict == "not tested: all pairs are equal"
    write_runs(tmp_path, "samsa", *(value - 0.01 for value in GOOD))  # but for rounding
    test = by_label(tmp_path)["samsa"].test
    assert (test.p, test.verdict, test.smallest) == (None, "not tested: all pairs differ by the same", None)


def test_a_difference_on_the_same_examples_has_a_variance_over_these_too(tmp_path: Path) -> None:
    correct = np.arange(200) % 4 > 0
    for name, right in {"mha": correct, "csp": correct | (np.arange(200) < 12)}.items():
        for folder in write_runs(tmp_path, name, *[right.mean()] * 3):
            write_predictions(folder, right)
    test = by_label(tmp_path)["csp"].test
    assert test.difference == pytest.approx(0.015)  # 3 of 200 examples, in every seed
    assert 0.05 < test.p < 0.2  # over seeds alone it would be 0


def test_pairs_need_equal_seeds_and_splits(tmp_path: Path) -> None:
    write_runs(tmp_path, "mha", 0.9, 0.8)
    write_run(tmp_path / "a", "csp", seed=0, accuracy=0.95)
    write_run(tmp_path / "b", "csp", seed=1, accuracy=0.5, split_seed=7)
    write_run(tmp_path / "c", "identity", seed=9)
    found = by_label(tmp_path)
    csp, identity = found["csp"].test, found["identity"].test
    assert (csp.pairs, csp.difference) == (1, pytest.approx(0.05))
    assert identity.verdict == "no seed and split in common"


def test_a_factor_gets_a_column_and_its_values_are_compared(tmp_path: Path) -> None:
    for size, accuracy in ((16, 0.8), (2, 0.9), (4, 0.85), (None, 0.5)):
        changes = {"attention.group_size": size}
        write_run(tmp_path / f"a{size}", accuracy=accuracy, options=changes)
        write_run(tmp_path / f"b{size}", accuracy=accuracy, options={**changes, "encoder.depth": 8})
    write_run(tmp_path / "mha", "mha")
    ((table, found),) = report(tmp_path, by="attention.group_size")
    csp = [line for line in found if line.row.label == "csp"]
    assert [line.row.factors for line in csp] == [(2,), (4,), (16,), (None,)]
    assert [line.test and line.test.against for line in csp] == [None, "csp 2", "csp 2", "csp 2"]
    assert [line.test.difference for line in csp if line.test] == pytest.approx([-0.05, -0.1, -0.4])
    assert "| attention | attention.group_size | n |" in markdown(collect(tmp_path), [(table, found)])
    assert report(tmp_path, by=("encoder.depth", "attention.group_size"))[0][1][0].row.label == "csp"
    with pytest.raises(ConfigError, match="has an option group_size"):
        report(tmp_path, by="group_size")


def test_costs_are_relative_to_the_reference_and_marked_outside_five_percent(tmp_path: Path) -> None:
    write_run(tmp_path / "mha", "mha", options={"encoder.depth": 4})
    write_run(tmp_path / "far", "mha", options={"encoder.depth": 9}, parameters=200_000)
    write_run(tmp_path / "deep", "csp", options={"encoder.depth": 9}, parameters=300_000)
    write_run(tmp_path / "csp", parameters=95_000, samples_per_second=2000.0)
    write_run(tmp_path / "samsa", "samsa", parameters=94_000, machine={"processor": "other"})
    write_run(tmp_path / "lost", "mha", accuracy=None, options={"encoder.depth": 7}, parameters=1)
    write_run(tmp_path / "middle", "csp", options={"encoder.depth": 7})
    found = by_label(tmp_path)
    assert (found["csp"].parameters.ratio, found["csp"].parameters.is_other) == (0.95, False)
    assert (found["csp"].speed.ratio, found["csp"].speed.is_other) == (2.0, True)
    assert (found["samsa"].parameters.is_other, found["samsa"].speed.ratio) == (True, None)
    assert found["mha"].parameters.ratio == 1.0
    assert found["csp encoder.depth=9"].parameters.ratio == 1.5, "to the mha that is most like it"
    middle = found["csp encoder.depth=7"]
    assert middle.test and (middle.test.against, middle.parameters.ratio) == ("mha", 1.0), "and has a result"
    assert "95,000 (0.95 ×) |" in text(tmp_path) and "94,000 (0.94 × *) |" in text(tmp_path)


CELL = {"paper": "csp", "table": "table3", "task": "cifar10", "attention": "csp", "metric": "test/accuracy"}
EQUAL = {"selection": "best_test", "num_train": 50_000, "epochs": 100}


def write_cifar(folder: Path, accuracy: float, **changes: Any) -> None:
    metrics = {"val/accuracy": 0.1, "test/accuracy_best_test_epoch": accuracy}
    facts = {"task": "cifar10", "parameters": 6_377_994, "metrics": metrics, "published": CELL}
    write_run(folder, accuracy=accuracy, **{**facts, "protocol": EQUAL, **changes})


def test_the_published_number_is_subtracted_under_an_equal_protocol_only(tmp_path: Path) -> None:
    write_cifar(tmp_path / "equal", 0.85)
    write_cifar(tmp_path / "failed", 0.9, seed=2, status="failed", protocol={**EQUAL, "epochs": 3})
    line = by_label(tmp_path)["csp"]
    assert line.mean == 0.85
    assert line.published.difference == pytest.approx(0.85 - 0.8481)
    assert "| 84.81 |" in text(tmp_path) and "published as csp table3 (test/accuracy), equal protocol" in text(tmp_path)
    write_cifar(tmp_path / "short", 0.8, seed=1, protocol={**EQUAL, "epochs": 3})
    line = by_label(tmp_path)["csp"]
    assert line.published.difference is None
    assert line.published.reasons == ("3 epochs, the paper 100",)
    assert "84.81 ≠ |" in text(tmp_path) and "not comparable: 3 epochs, the paper 100" in text(tmp_path)


def test_a_published_number_of_another_metric_than_the_table_s_keeps_its_unit_and_says_its_metric(
    tmp_path: Path,
) -> None:
    write_cifar(tmp_path, 0.85, metrics={"val/accuracy": 0.1, "test/accuracy": 0.85, "test/loss": 0.4})
    page = text(tmp_path, metric="test/loss")
    assert "| 0.4 |" in page and "| 84.81 test/accuracy, % |" in page and "| +0.19 |" in page


def test_the_join_is_by_the_published_node_only_and_reports_its_faults(tmp_path: Path) -> None:
    write_cifar(tmp_path / "unnamed", 0.85, published=None)
    assert by_label(tmp_path)["csp"].published is None
    write_cifar(tmp_path / "wrong", 0.85, seed=1, published={**CELL, "table": "table9"})
    assert "wrong: published: no paper prints" in " ".join(by_label(tmp_path)["csp"].notes)
    write_cifar(tmp_path / "one", 0.85, seed=2)
    write_cifar(tmp_path / "two", 0.85, seed=3, published={**CELL, "variant": "sort_only"})
    line = by_label(tmp_path)["csp"]
    assert line.published is None and any("name several cells" in note for note in line.notes)


def test_papers_that_differ_give_a_range_with_its_sources(tmp_path: Path) -> None:
    cell = {"paper": "samsa", "table": "table1", "task": "lra_listops", "attention": "mha", "metric": "test/accuracy"}
    write_run(tmp_path / "a", "mha", published=cell, task="lra_listops")
    line = by_label(tmp_path)["mha"]
    printed = [
        float(result.printed) / 100
        for other, result in published_results().items()
        if (other.task, other.attention, other.variant, other.metric) == ("lra_listops", "mha", "", "test/accuracy")
    ]
    assert len(printed) > 1
    assert line.published.results[0] is find_published(cell)
    assert line.published.span == pytest.approx((min(printed), max(printed)))
    assert "36.37 in sliceformer table2" in text(tmp_path)


def test_an_interval_is_over_examples_too_if_the_predictions_reproduce_the_metric(tmp_path: Path) -> None:
    correct = np.arange(200) % 4 > 0
    folders = write_runs(tmp_path, "csp", 0.75, 0.75, 0.755)
    for folder in folders:
        write_predictions(folder, correct | (folder == folders[2]) * (np.arange(200) == 0))
    interval = by_label(tmp_path)["csp"].interval
    assert interval.low < 0.75 < interval.high
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * (0.75 * 0.25 / 200) ** 0.5, rel=0.25)
    write_predictions(folders[1], correct, first_id=5)
    line = by_label(tmp_path)["csp"]
    assert line.interval.how == "Student's t over seeds"
    assert "different examples" in line.notes[-1] and "| seeds |" in text(tmp_path)
    write_predictions(folders[1], ~correct)
    assert by_label(tmp_path)["csp"].interval.how.endswith("over seeds")
    (folders[1] / "predictions.npz").write_bytes(b"PK broken")
    assert "predictions.npz cannot be read" in by_label(tmp_path)["csp"].notes[-1]


def test_runs_of_several_folds_have_an_interval_over_splits_and_those_of_one_test_set_over_examples(
    tmp_path: Path,
) -> None:
    accuracies, sizes = {"csp": (0.75, 0.8, 0.7), "mha": (0.7, 0.7, 0.65)}, {"num_train": 800, "num_test": 200}
    for split in range(3):
        for attention, values in accuracies.items():
            folder = tmp_path / f"{attention}{split}"
            write_run(folder, attention, accuracy=values[split], split_seed=split, protocol=sizes)
            write_predictions(folder, np.arange(200) < 200 * values[split])
    line = by_label(tmp_path)["csp"]
    corrected = 4.303 * np.sqrt((1 / 3 + 200 / 800) * np.var([0.75, 0.8, 0.7], ddof=1))  # Student's t of 2 degrees
    assert line.interval.how == "Student's t over splits"
    assert line.interval.low == pytest.approx(0.75 - corrected, abs=1e-4)
    assert line.test.estimate.over == "splits"
    spread = np.var([0.05, 0.1, 0.05], ddof=1)
    assert line.test.estimate.variance == pytest.approx((1 / 3 + 200 / 800) * spread)
    for file in tmp_path.glob("*/summary.json"):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"digests": {"test": "published"}}))
    line = by_label(tmp_path)["csp"]
    assert line.interval.how == "Student's t over seeds and examples"


def test_seeds_on_one_split_do_not_count_as_further_splits(tmp_path: Path) -> None:
    accuracies, sizes = {"csp": (0.75, 0.8, 0.7), "mha": (0.7, 0.7, 0.65)}, {"num_train": 800, "num_test": 200}

    def write(seed: int) -> Line:
        for split in range(3):
            for attention, values in accuracies.items():
                value = values[split] + (0.01 if seed else -0.01)
                fold = {"split_seed": split, "protocol": sizes, "seed": seed}
                write_run(tmp_path / f"{attention}{split}{seed}", attention, accuracy=value, **fold)
        return by_label(tmp_path)["csp"]

    one, two = write(0), write(1)
    assert one.interval and two.interval and one.test and two.test and one.test.estimate and two.test.estimate
    assert two.interval.high - two.interval.low == pytest.approx(one.interval.high - one.interval.low)
    assert (two.test.pairs, two.test.p) == (6, pytest.approx(one.test.p)) and two.mean == pytest.approx(0.75)


def test_runs_without_the_metric_are_noted(tmp_path: Path) -> None:
    write_runs(tmp_path, "csp", 0.9, 0.8)
    write_run(tmp_path / "val_only", seed=2, metrics={"val/accuracy": 0.7})
    line = by_label(tmp_path)["csp"]
    assert (len(line.values), line.planned) == (2, 3)
    assert "seed 2 without test/accuracy: val_only" in line.notes
    assert line.statuses == {"ok": 2, "ok without test/accuracy": 1}
    write_run(tmp_path / "nan", seed=3, metrics={"test/accuracy": float("nan")})
    assert len(by_label(tmp_path)["csp"].values) == 2
    assert by_label(tmp_path, metric="test/loss")["csp"].mean == pytest.approx(0.15)
    with pytest.raises(ConfigError, match=r"metric=test/f1: no run .* there are test/accuracy, test/loss"):
        report(tmp_path, metric="test/f1")


def test_two_seeds_and_equal_results_show_their_ends_and_an_interval_ends_where_the_metric_ends(tmp_path: Path) -> None:
    write_runs(tmp_path, "csp", 0.7, 0.9)
    write_runs(tmp_path, "identity", 0.6, 0.6, 0.6)
    write_runs(tmp_path, "mha", 0.7, 0.8, 0.99)
    page = text(tmp_path)
    assert "| 80.00 (70.00, 90.00) |" in page and "| 60.00 (60.00, 60.00) |" in page
    assert re.search(r"83\.00 \[46\.\d\d, 100\.00\]", page)
    found = by_label(tmp_path, metric="test/loss")
    assert list(found) == ["mha", "csp", "identity"], "the smaller loss first"
    assert found["csp"].interval is None
    assert found["mha"].interval.low == 0.0


def test_references_are_rows_without_runs_best_first(tmp_path: Path) -> None:
    rows = [
        {"name": "most frequent class", "metrics": {"test/accuracy": 0.1}, "seconds": 0.0},
        {"name": "pixels + forest", "metrics": {"test/accuracy": 0.96}, "seconds": 2.5},
        {"name": "slow model", "skipped": "it takes longer than 30 s"},
    ]
    write_runs(tmp_path, "csp", 0.9, 0.8, references=rows)
    page = text(tmp_path)
    names = [line.split(" | ")[0] for line in page.splitlines() if line.startswith("| ") and "---" not in line]
    assert names == [
        "| attention",
        "| csp",
        "| reference: pixels + forest",
        "| reference: most frequent class",
        "| reference: slow model",
    ]
    assert "| not scored: it takes longer than 30 s |" in page
    assert re.search(r"\| reference: pixels \+ forest \|  \| 96\.00 \|", page)
    table = frame(report(tmp_path))
    assert table[table["attention"].str.startswith("reference: ")]["mean"].tolist() == [0.96, 0.1]
    write_runs(tmp_path, "csp", 0.9, 0.8, references=[{"name": "x", "metrics": {"test/accuracy": None}}])
    assert "| reference: " not in text(tmp_path)


def test_a_reference_has_the_mean_over_all_splits_however_many_runs_a_split_has(tmp_path: Path) -> None:
    late = {"name": "k-NN", "skipped": "it takes too long"}
    in_time = {"name": "k-NN", "metrics": {"test/accuracy": 0.99}}
    for seed, (split, score, other) in enumerate([(0, 0.9, late), (0, 0.9, in_time), (1, 0.5, late)]):
        rows = [{"name": "forest", "metrics": {"test/accuracy": score}}, other]
        options = {"data.split_seed": split}
        write_run(tmp_path / f"{seed}", seed=seed, options=options, split_seed=split, references=rows)
    ((table, _),) = report(tmp_path)
    assert [(one.name, one.value) for one in references_in(table)] == [("forest", pytest.approx(0.7))]
    assert "| reference: k-NN |  | not scored: it takes too long |" in text(tmp_path)


def test_the_csv_has_the_numbers_unrounded(tmp_path: Path) -> None:
    write_runs(tmp_path, "csp", 1 / 3, 1 / 2)
    assert frame(report(tmp_path))["mean"].tolist() == [pytest.approx(5 / 12, rel=1e-12)]


def test_the_command_writes_every_file_into_the_folder(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "the runs' = mine"
    write_runs(folder, "csp", 0.9, 0.8, 0.7)
    assert main(["report", str(folder), "figures=true"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    written = sorted(file.name for file in (folder / "report").iterdir())
    assert written == ["figures", "report.csv", "report.html", "report.md", "report.tex"]
    pictures = sorted((folder / "report" / "figures").iterdir())
    names = [f"{name}.{ending}" for name in ("score_against_speed", "scores") for ending in ("pdf", "png")]
    assert [file.name for file in pictures] == names
    for file in pictures:
        assert file.read_bytes().startswith(b"\x89PNG" if file.suffix == ".png" else b"%PDF")
        assert file.suffix == ".pdf" or Image.open(file).mode == "P", "a palette: a tenth of the size"
        assert b"/Type3" not in file.read_bytes(), "a font that publishers refuse"
    assert "80.00 [55.16, 100.00]" in out and "3 runs: 3 ok." in out and "report.md" in out
    assert pd.read_csv(folder / "report" / "report.csv")["done"].tolist() == [3]
    before = (folder / "report" / "report.md").read_text()
    assert "the runs' = mine" in before and "3 of 3" in before
