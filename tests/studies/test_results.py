"""Results are collected once each, and the figure over depth follows from them."""

from __future__ import annotations

from pathlib import Path

import depth
import pytest
import results
from support.run_folders import write_run

from sliceformer_lab.errors import DataError


def test_every_study_has_each_seed_of_an_attention_once() -> None:
    sizes = {}
    for file in sorted(results.RESULTS.glob("*.jsonl")):
        runs = results.read(file.stem)
        names = ("task", "attention", "setting", "arm", "steps", "seed")
        keys = {tuple(run.get(name, "") for name in names) for run in runs}
        assert len(keys) == len(runs), file.name
        sizes[file.stem] = len(runs)
    assert (sizes["controls_digits"], sizes["controls_cifar10"], sizes["modalities"]) == (90, 30, 20)


def test_collect_adds_new_runs_and_replaces_old_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    command = {"command": ["study=x", "data.root=/somewhere", "task.bias=false"], "git_commit": "abc"}
    folders = [write_run(tmp_path / f"run{i}", "csp", i, 0.5, **command, wall_seconds=1.0) for i in (1, 0)]
    results.collect("some", map(str, folders))
    write_run(folders[0], "csp", 1, 0.75, **command, wall_seconds=1.0)
    results.collect("some", [str(folders[0])])
    found = results.read("some")
    assert [(run["seed"], run["metrics"]["test/accuracy"]) for run in found] == [(0, 0.5), (1, 0.75)]
    assert found[0]["command"] == ["study=x", "task.bias=false"] and found[0]["setting"] == "task.bias=false"


def test_collect_refuses_a_failed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    with pytest.raises(DataError, match="has status failed"):
        results.collect("some", [str(write_run(tmp_path / "run", accuracy=None))])
    assert results.read("some") == []


def test_runs_on_other_data_are_not_collected(tmp_path: Path) -> None:
    for seed, digest in enumerate("aab"):
        write_run(tmp_path / f"run{seed}", seed=seed, digests={"train": str(seed), "val": "v", "test": digest})
    assert len([*results.finished_runs([tmp_path / "run0", tmp_path / "run1"])]) == 2
    with pytest.raises(DataError, match="run2: its test data are not those of the other runs of digits"):
        list(results.finished_runs([tmp_path]))
    write_run(tmp_path / "run2", digests={"test": "b"}, protocol={"sequence_length": 64})
    assert len([*results.finished_runs([tmp_path])]) == 3, "of another length"


def test_figures_are_small_files() -> None:
    large = [file.name for file in depth.PICTURE.parent.glob("*.png") if file.stat().st_size > 300_000]
    assert large == []
