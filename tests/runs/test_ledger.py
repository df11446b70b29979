"""Every command that scores a test set adds a line to the ledger beside the data."""

from __future__ import annotations

from pathlib import Path

import pytest

from sliceformer_lab.__main__ import main
from sliceformer_lab.config.explain import job_config
from sliceformer_lab.runs.ledger import changed_options, read_ledger
from sliceformer_lab.runs.score_options import score_options

TINY = ("attention=identity", "encoder=tiny", "encoder.depth=1", "optim.epochs=1", "callbacks=minimal")
DIGITS = (*TINY, "pictures=false", "reference=null", "data.limit_train=64", "data.limit_eval=64")

CHANGES: dict[tuple[str, ...], list[str]] = {  # words -> the options that count
    (): [],
    ("seed=7", "optim.lr=1"): [],
    ("encoder.depth=3", "task.pool=max"): ["encoder.depth", "task.pool"],
    ("callbacks=default",): [],
    ("data.batch_size=null", "optim.epochs=null"): [],  # null is left to the run
    ("data.limit_train=null",): ["data.limit_train"],  # all examples
    ("callbacks=ema",): ["callbacks.early_stop.patience_share", "callbacks.ema.decay", "callbacks.ema.every"],
}


def test_training_and_scoring_again_count_and_a_run_without_a_test_score_does_not(tmp_path: Path) -> None:
    words = [*DIGITS, "optim.warmup_steps=0"]
    places = [f"paths.data={tmp_path / 'data'}", f"paths.outputs={tmp_path / 'out'}"]
    assert main([*words, *places, "score_test=false"]) == 0
    assert read_ledger(tmp_path / "data") == []
    assert main([*words, *places, "seed=1"]) == 0
    (one,) = read_ledger(tmp_path / "data")
    assert (
        (one.task, one.attention, one.seed) == ("digits", "identity", 1) and one.test_digest and Path(one.run).is_dir()
    )
    for more, expected in CHANGES.items():
        assert changed_options(one.options, job_config([*words, *more]), ["optim.lr"]) == expected
    seen = one.options | {"optim.clip_norm": 1.0, "callbacks.ema.decay": 0.9}  # which is null now, and gone
    assert changed_options(seen, job_config(words), []) == ["optim.clip_norm", "callbacks.ema.decay"]
    assert main(["mode=eval", f"resume={one.run}", f"paths.data={tmp_path / 'data'}"]) == 0
    assert [each.run for each in read_ledger(tmp_path / "data")] == [one.run, one.run]


def test_the_same_test_examples_are_one_test_set_wherever_they_are_read_from(tmp_path: Path) -> None:
    digests = []
    for name, rows in {"one": 40, "moved": 40, "more": 60}.items():
        table = tmp_path / f"{name}.csv"
        lines = [f"{word} {number},{word}" for word in ("good", "bad") for number in range(rows)]
        table.write_text("\n".join(["text,label", *lines]))
        words = [*TINY, "task=text_csv", "data.tokens=bytes", f"data.file={table}", "pictures=false", "reference=null"]
        places = [f"paths.data={tmp_path / name}", f"paths.outputs={tmp_path / 'out'}"]
        assert main([*words, *places]) == 0
        digests += [one.test_digest for one in read_ledger(tmp_path / name)]
    assert len(digests) == 3 and digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("line", ["{", "[1]", '{"task": 1}'])
def test_a_damaged_line_is_left_out(tmp_path: Path, line: str) -> None:
    (tmp_path / "test_ledger.jsonl").write_text(line + "\n")
    assert read_ledger(tmp_path) == []


def test_where_data_lie_and_how_they_are_loaded_is_no_other_setting() -> None:
    counted = score_options(job_config(["task=mnist", "attention=csp", "data.download=false"]))
    assert "data.batch_size" in counted and not {"data.root", "data.download", "data.num_workers"} & counted.keys()
