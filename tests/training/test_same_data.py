"""A result belongs to the data that it was trained and scored on; other data are noticed wherever they meet it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image
from support.run_folders import read_summary
from support.runs import mark_interrupted

from sliceformer_lab import load_export, load_run
from sliceformer_lab.__main__ import main
from sliceformer_lab.commands.compare.reference_scores import reference_scores
from sliceformer_lab.errors import DataError
from sliceformer_lab.runs.files import digest_of
from sliceformer_lab.runs.folder import read_checkpoint
from sliceformer_lab.training.results.prediction_table import PREPROCESSING

ROWS = [f"{word} number {i},{label}" for i in range(40) for word, label in (("good", "pos"), ("bad", "neg"))]
SPLITS = (*["train"] * 48, *["val"] * 16, *["test"] * 16)
RUN = (
    *("task=text_csv", "attention=identity", "encoder=tiny", "encoder.depth=1", "data.tokens=bytes"),
    *("data.split_column=split", "data.max_len=16", "optim.epochs=2", "optim.warmup_steps=0", "callbacks=minimal"),
    *("pictures=false", "reference=null", "data.bucket=false"),
)


def write_table(file: Path, rows: list[str] = ROWS, stamp: int | None = None) -> None:
    lines = [f"{row},{split}" for row, split in zip(rows, SPLITS, strict=True)]
    file.write_text("\n".join(["text,label,split", *lines, ""]))
    if stamp is not None:
        os.utime(file, ns=(stamp, stamp))


def flipped(row: str) -> str:
    return row.replace(",pos", ",x").replace(",neg", ",pos").replace(",x", ",neg")


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Trains on a table, which is named from tmp_path."""
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "table.csv")

    def run(*words: str, table: str = "table.csv") -> int:
        return main([*RUN, f"data.file={table}", f"paths.data={tmp_path / 'data'}", *words])

    return run


def stopped(train: Callable[..., int], folder: Path) -> Path:
    """A run that was stopped after its first epoch."""
    assert train(f"hydra.run.dir={folder}") == 0
    return mark_interrupted(folder)


def test_two_tables_of_one_name_size_and_time_have_caches_and_digests_of_their_own(
    train: Callable[..., int], tmp_path: Path
) -> None:
    found = {}
    for name, rows in {"real": ROWS, "permuted": [*map(flipped, ROWS)]}.items():
        (tmp_path / name).mkdir()
        write_table(tmp_path / name / "table.csv", rows, stamp=10**18)
        assert train(f"hydra.run.dir={tmp_path / 'runs' / name}", table=f"{name}/table.csv") == 0
        found[name] = read_summary(tmp_path / "runs" / name)
    assert found["real"]["protocol"]["sha256"] != found["permuted"]["protocol"]["sha256"]
    digests = found["real"]["digests"], found["permuted"]["digests"]
    assert all(digests[0][split] != digests[1][split] for split in ("train", "val", "test"))


def test_a_checkpoint_and_the_summary_hold_the_digests_of_the_splits(train: Callable[..., int], tmp_path: Path) -> None:
    assert train(f"hydra.run.dir={tmp_path / 'run'}") == 0
    summary = read_summary(tmp_path / "run")
    states = read_checkpoint(tmp_path / "run" / "checkpoints" / "last.ckpt").values()
    kept = [state["digests"] for state in states if isinstance(state, dict) and "digests" in state]
    assert kept == [summary["digests"]] and set(summary["digests"]) == {"train", "val", "test"}
    assert list(summary["sources"]) == [str(tmp_path / "table.csv")]


def test_a_checkpoint_of_another_run_is_refused_wherever_it_would_be_used(
    train: Callable[..., int], tmp_path: Path, refused: Callable[..., str]
) -> None:
    folder = stopped(train, tmp_path / "run")
    assert train("seed=1", f"hydra.run.dir={tmp_path / 'seed'}") == 0
    write_table(tmp_path / "table.csv", [*map(flipped, ROWS)])
    assert train(f"hydra.run.dir={tmp_path / 'data'}") == 0
    write_table(tmp_path / "table.csv")
    for other, reason in {"seed": "its seed is 1, and", "data": "it was trained on other data than"}.items():
        for name in ("best.ckpt", "last.ckpt"):
            shutil.copy(tmp_path / other / "checkpoints" / name, folder / "checkpoints" / name)
        for words in (["predict", "input=table.csv"], ["export"], ["mode=eval"]):
            assert f"is the checkpoint of another run: {reason}" in refused(*words, f"resume={folder}"), (other, words)
    assert "is the checkpoint of another run" in refused(f"resume={folder}")


def test_a_run_whose_test_labels_changed_is_not_resumed_unless_that_is_accepted_and_recorded(
    train: Callable[..., int], tmp_path: Path, refused: Callable[..., str]
) -> None:
    folder = stopped(train, tmp_path / "run")
    before = read_summary(folder)["digests"]
    write_table(tmp_path / "table.csv", [*ROWS[:64], *map(flipped, ROWS[64:])])
    changed = f"the test data of {folder} have changed since it was trained ({tmp_path / 'table.csv'})"
    assert changed in refused(f"resume={folder}")
    assert main([f"resume={folder}", "changed_data=accept"]) == 0
    summary = read_summary(folder)
    assert summary["starts"][-1]["changed_data"] == ["test"] and summary["digests"]["train"] == before["train"]


@pytest.mark.parametrize("last", ["gone", "damaged"])
def test_a_run_without_its_summary_and_last_checkpoint_is_resumed_on_no_other_data(
    train: Callable[..., int], tmp_path: Path, refused: Callable[..., str], last: str
) -> None:
    folder = stopped(train, tmp_path / "run")
    (folder / "summary.json").write_text("{")
    checkpoint = folder / "checkpoints" / "last.ckpt"
    checkpoint.write_bytes(checkpoint.read_bytes()[:100]) if last == "damaged" else checkpoint.unlink()
    write_table(tmp_path / "table.csv", [*map(flipped, ROWS)])
    assert "the training, validation and test data of " in refused(f"resume={folder}")


def test_a_resumed_run_reads_its_table_from_any_folder_and_its_copy_is_the_same_data(
    train: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = stopped(train, tmp_path / "run")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    shutil.copy(tmp_path / "table.csv", tmp_path / "copy.csv")
    shutil.move(tmp_path / "copy.csv", tmp_path / "table.csv")  # another inode, another time
    assert main([f"resume={folder}"]) == 0


def test_values_that_were_tuned_on_other_data_are_refused_unless_that_is_accepted_and_recorded(
    train: Callable[..., int], tmp_path: Path, refused: Callable[..., str]
) -> None:
    assert train(f"hydra.run.dir={tmp_path / 'first'}") == 0
    own = f"text_csv/{read_summary(tmp_path / 'first')['protocol']['sha256'][:12]}"
    best = {"tuned_on": own, "attention": {"identity": {"words": ["optim.lr=0.01"]}}}
    (tmp_path / "best.json").write_text(json.dumps(best))
    tuned = f"optim=tuned:{tmp_path}/identity"
    absent = ("task=mnist", f"data.root={tmp_path / 'nothing'}", "data.download=false", "attention=identity", tuned)
    assert "put " in refused(*absent, f"hydra.run.dir={tmp_path / 'absent'}")  # nobody has prepared these data before
    assert train(tuned, "data.split_seed=3", f"hydra.run.dir={tmp_path / 'same'}") == 0
    assert "data_remarks" not in read_summary(tmp_path / "same")
    write_table(tmp_path / "table.csv", [*map(flipped, ROWS)])
    words = (*RUN, f"data.file={tmp_path / 'table.csv'}", f"paths.data={tmp_path / 'data'}", tuned)
    assert f"were tuned on {own}, and the task and data of this run are text_csv/" in refused(*words)
    sweep = tmp_path / "sweep"
    assert f"were tuned on {own}, and" in refused("-m", *words, "seed=0,1", f"hydra.sweep.dir={sweep}")
    assert not sweep.exists()  # no job has started
    folder = tmp_path / "accepted"
    assert train(tuned, "changed_data=accept", f"hydra.run.dir={folder}") == 0
    assert "were tuned on" in read_summary(folder)["data_remarks"][0]
    assert (
        main([f"resume={mark_interrupted(folder)}"]) == 0 and "were tuned on" in read_summary(folder)["data_remarks"][0]
    )
    best["tuned_on"] = own.replace("text_csv", "sms")
    (tmp_path / "best.json").write_text(json.dumps(best))
    write_table(tmp_path / "table.csv")
    assert "were tuned on sms/" in refused(*words)


def write_pictures(folder: Path, shades: dict[str, int]) -> Path:
    """Pictures of one grey level for each class."""
    for name, shade in shades.items():
        (folder / name).mkdir(parents=True)
        for i in range(20):
            Image.new("RGB", (8, 8), (shade, shade, shade - i)).save(folder / name / f"{i}.png")
    return folder


@pytest.fixture(scope="module")
def cats_and_dogs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that classifies dark cats and light dogs."""
    folder = tmp_path_factory.mktemp("pictures")
    root = write_pictures(folder / "trained", {"cats": 40, "dogs": 220})
    words = ("task=image_folder", f"data.root={root}", "attention=identity", "encoder=tiny", "optim.epochs=12")
    words = (*words, "encoder.depth=1", "data.augment=none", "optim.warmup_steps=0", "callbacks=minimal")
    assert main([*words, "pictures=false", "reference=null", f"hydra.run.dir={folder / 'run'}"]) == 0
    assert read_summary(folder / "run")["metrics"]["test/accuracy"] == 1
    return folder


def test_no_simple_model_is_scored_on_data_that_changed_since_the_runs(
    train: Callable[..., int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert train("hydra.run.dir=run") == 0
    write_table(tmp_path / "table.csv", [flipped(row) for row in ROWS])
    assert reference_scores(tmp_path / "run", seconds=1.0) == []
    assert "the training, validation and test data have changed since" in caplog.text


def test_load_run_gives_no_data_that_changed_and_its_model_is_exported_without_data(
    train: Callable[..., int], tmp_path: Path
) -> None:
    assert train("hydra.run.dir=run") == 0
    assert load_run("run").data.examples("train", [0])
    write_table(tmp_path / "table.csv", [*(row.replace(",pos", ",other") for row in ROWS[:24]), *ROWS[24:]])
    changed = load_run("run")
    with pytest.raises(DataError, match="the training data have changed since run was trained"):
        _ = changed.data
    (tmp_path / "table.csv").unlink()
    assert main(["export", "resume=run", "format=safetensors"]) == 0
    model = load_export("run/export/safetensors")
    torch.testing.assert_close(model(model.example()), changed.model(model.example()), rtol=0, atol=0)


def test_evaluation_on_data_with_fewer_classes_matches_them_by_name_and_leaves_what_training_wrote(
    cats_and_dogs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other = write_pictures(tmp_path / "other", {"dogs": 220, "zebras": 40})
    (other / "zebras").rename(other / "cats")  # made later, sorted first
    run, one = cats_and_dogs / "run", write_pictures(tmp_path / "one", {"dogs": 220})
    written = ("preprocessing.json", "summary.json", "config.yaml", "predictions.csv", "checkpoints/best.ckpt")
    before = {name: (run / name).read_bytes() for name in written}
    for root in (other, one):
        assert main(["mode=eval", f"resume={run}", f"data.root={root}"]) == 0
        found = json.loads((run / "eval.json").read_text())
        assert found["metrics"]["test/accuracy"] == 1
    assert "test" in found["changed_data"] and list(found["sources"]) == [str(one)]
    printed = "".join(capfd.readouterr())
    assert found["num_test"] == 2 and "test examples that are drawn from all rows may be ones" in printed
    assert {name: (run / name).read_bytes() for name in written} == before


def test_a_class_that_the_run_was_not_trained_on_is_an_error_that_names_it(
    cats_and_dogs: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    root = write_pictures(tmp_path / "other", {"ants": 40, "bees": 220, "cats": 90})
    said = refused("mode=eval", f"resume={cats_and_dogs / 'run'}", f"data.root={root}")
    assert "has the classes ants, bees, on which the model was not trained; it knows cats, dogs" in said


def test_a_run_that_has_not_saved_its_classes_is_scored_on_no_other_data(
    train: Callable[..., int], tmp_path: Path, refused: Callable[..., str]
) -> None:
    folder = stopped(train, tmp_path / "run")
    (folder / PREPROCESSING).unlink(missing_ok=True)
    write_table(tmp_path / "table.csv", [row.replace(",pos", ",amber") for row in ROWS])  # now the first class
    said = refused("mode=eval", f"resume={folder}")
    assert f"the training, validation and test data have changed since {folder} was trained" in said
    assert not (folder / PREPROCESSING).exists() and not (folder / "eval.json").exists()
    write_table(tmp_path / "table.csv")
    assert main(["mode=eval", f"resume={folder}"]) == 0
    assert json.loads((folder / PREPROCESSING).read_text())["classes"] == ["neg", "pos"]


def test_evaluation_matches_labels_by_name_and_decides_by_the_thresholds_of_the_run(
    train: Callable[..., int], tmp_path: Path, refused: Callable[..., str]
) -> None:
    table, run = tmp_path / "table.csv", tmp_path / "run"
    long = [row.replace(",", " and more,") if i % 8 < 3 else row for i, row in enumerate(ROWS)]
    tagged = [row.replace("neg", "").replace("pos", "good") + ("/more" if "more" in row else "") for row in long]
    write_table(table, tagged)
    assert train(f"hydra.run.dir={run}", "data.labels_separator=/") == 0
    trained = read_summary(run)["metrics"]
    saved = json.loads((run / PREPROCESSING).read_text())
    assert saved["targets"] == ["good", "more"] and trained["test/f1_micro"] > 0

    def scored() -> dict[str, float]:
        assert main(["mode=eval", f"resume={run}"]) == 0
        return json.loads((run / "eval.json").read_text())["metrics"]

    assert scored()["test/f1_micro"] == trained["test/f1_micro"]
    (run / PREPROCESSING).write_text(json.dumps(saved | {"thresholds": [1.0, 1.0]}))
    assert scored()["test/f1_micro"] == 0
    (run / PREPROCESSING).write_text(json.dumps(saved | {"thresholds": [1.0, 0.0]}))
    write_table(
        table, [row.replace("good/", "").replace(",good", ",") for row in tagged]
    )  # now all have `more` or none
    share = sum("more" in row for row in tagged[64:]) / 16
    assert scored()["test/f1_micro"] == pytest.approx(2 * share / (1 + share))
    write_table(table, [row.replace(",good", ",great") for row in tagged])
    said = refused("mode=eval", f"resume={run}")
    assert "has the targets great, on which the model was not trained; it knows good, more" in said


def test_a_table_of_predictions_names_the_data_of_the_run_and_of_its_input(cats_and_dogs: Path, tmp_path: Path) -> None:
    pictures, output = write_pictures(tmp_path / "new", {"unknown": 200}), tmp_path / "new.csv"
    words = ["predict", f"resume={cats_and_dogs / 'run'}", f"input={pictures}", f"output={output}"]
    assert main(words) == 0
    record = json.loads((tmp_path / "new.csv.json").read_text())
    assert record["trained_on"] == read_summary(cats_and_dogs / "run")["digests"]
    assert record["input"] == {str(pictures): digest_of(pictures)}
