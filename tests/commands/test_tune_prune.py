"""Pruning ends trials that do worse than the median of earlier ones, and records that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.runs import small_config
from support.written_runs import WrittenRuns

pytest.importorskip("optuna")

from sliceformer_lab.__main__ import main
from sliceformer_lab.commands.tune import tuning
from sliceformer_lab.commands.tune.medians import median_curve
from sliceformer_lab.commands.tune.trials import Trials
from sliceformer_lab.commands.tune.tune_options import TuneOptions
from sliceformer_lab.errors import ConfigError, InterruptedRunError, PrunedError
from sliceformer_lab.runs.folder import read_summary
from sliceformer_lab.runs.job_state import JobState
from sliceformer_lab.training.goal import Goal
from sliceformer_lab.training.run import run

TARGET = "+callbacks.prune._target_=sliceformer_lab.callbacks.prune.MedianPruning"
LOSS, ACCURACY = Goal("mae", "min"), Goal("accuracy", "max")


def train(folder: Path, medians: object, epochs: int = 3) -> None:
    file = folder / "medians.json"
    file.write_text(json.dumps(medians))
    run(
        small_config(f"optim.epochs={epochs}", "reference=null", TARGET, f"+callbacks.prune.file={file}"),
        folder / "run",
    )


def test_a_run_below_the_median_ends_at_once_and_is_no_failure(tmp_path: Path) -> None:
    with pytest.raises(
        PrunedError, match=r"val/accuracy was worse after epoch 2 than the median of earlier trials, 0.99"
    ):
        train(tmp_path, {"0": 0.0, "1": 0.99})
    summary = read_summary(tmp_path / "run")
    assert summary["status"] == "pruned" and "metrics" not in summary


@pytest.mark.parametrize("medians", [{}, {"0": 0.0, "1": 0.0}, {"2": 0.99}])
def test_a_run_above_the_median_or_in_its_last_epoch_goes_on(tmp_path: Path, medians: dict[str, float]) -> None:
    train(tmp_path, medians)
    assert read_summary(tmp_path / "run")["status"] == "ok"


def test_medians_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"callbacks.prune.file: .*medians.json cannot be read"):
        train(tmp_path, [1])


def test_a_median_is_of_the_best_score_until_an_epoch_and_needs_three_runs(tmp_path: Path) -> None:
    scores = {"a": [0.3, 0.2, 0.4], "b": [0.1, 0.5, 0.3], "c": [0.2, 0.1], "d": []}
    for name, values in scores.items():
        file = tmp_path / name / "csv" / "version_0" / "metrics.csv"
        file.parent.mkdir(parents=True)
        rows = [f"{epoch},{10 * epoch},,{value},{value}" for epoch, value in enumerate(values)]
        rows += [f"{epoch},{10 * epoch},0.5,," for epoch in range(len(values))]  # rows without validation
        file.write_text("\n".join(["epoch,step,train/loss,val/accuracy,val/mae", *rows]))
    folders = [tmp_path / name for name in (*scores, "none")]
    assert median_curve(folders, ACCURACY) == {"0": 0.2, "1": 0.3}
    assert median_curve(folders, LOSS) == {"0": 0.2, "1": pytest.approx(0.1)}
    assert median_curve(folders[:2], ACCURACY) == {}


@pytest.mark.slow
def test_a_search_with_pruning_compares_each_attention_with_itself(tmp_path: Path) -> None:
    words = ["encoder=tiny", "optim.epochs=3", "optim.warmup_steps=0", "data.limit_train=128", "callbacks=minimal"]
    options = ["trials=6", "round=3", "seeds=1", "prune=median", f"folder={tmp_path}"]
    assert main(["tune", "attention=identity", *options, *words, "pictures=false", "reference=null"]) == 0
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    trials = report["attention"]["identity"]["trials"]
    assert {trial["status"] for trial in trials[:3]} == {"ok"} and "pruned" in {trial["status"] for trial in trials}
    pruned = next(trial for trial in trials if trial["status"] == "pruned")
    assert read_summary(tmp_path / "trials" / f"identity-{pruned['number']:03d}")["status"] == "pruned"
    assert "than the median of earlier trials" in (tmp_path / "report" / "report.md").read_text()


def test_medians_are_of_earlier_rounds_even_if_a_search_was_stopped_while_it_recorded_a_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[list[str]] = []
    options = TuneOptions(
        attentions=("csp",), trials=4, round=2, seeds=1, prune="median", words=("encoder=tiny",), folder=str(tmp_path)
    )
    end = Trials.end

    def note(folders: list[Path], goal: Goal) -> dict[str, float]:
        compared.append([folder.name for folder in folders])
        return {}

    def end_until_killed(self: Trials, number: int, state: JobState) -> None:
        if number == 3:
            raise InterruptedRunError("killed", 9)
        end(self, number, state)

    monkeypatch.setattr(tuning, "median_curve", note)
    with monkeypatch.context() as patch, pytest.raises(InterruptedRunError):
        patch.setattr(Trials, "end", end_until_killed)
        tuning.run(options, WrittenRuns(lambda _: 0.9))
    tuning.run(options, WrittenRuns(lambda _: 0.9))
    assert compared == [[], ["csp-000", "csp-001"], ["csp-000", "csp-001"]]
