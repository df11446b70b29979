"""Self-pretraining before a training: what it hands over, that it goes on after a stop, and what it refuses."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import LightningModule, Trainer
from support.plans import build_data, build_task, plan_of, run
from support.run_folders import read_summary
from support.runs import assert_equal_runs, small_config, stopped_at
from support.task_modules import SMALL, ready

from sliceformer_lab.callbacks.guard import Guard
from sliceformer_lab.config.checked import check_config
from sliceformer_lab.config.compose import compose_root, option_names
from sliceformer_lab.errors import ConfigError, Interrupted, RunFolderError
from sliceformer_lab.runs.files import digest_of, known_json, write_json
from sliceformer_lab.runs.folder import load_weights, read_checkpoint, read_metrics
from sliceformer_lab.training import build, fitting
from sliceformer_lab.training.context import RunContext
from sliceformer_lab.training.pretraining.pretrain import check_maskable, num_pretraining_steps, pretraining_plan
from sliceformer_lab.training.pretraining.pretrain_options import PretrainOptions
from sliceformer_lab.training.pretraining.pretrained_weights import Pretrained

SHORT = ("pretrain=masked", "optim.epochs=1", "pretrain.epochs=2", "encoder.depth=1")
RANDOM = ("attention=random_permutation",)


@pytest.fixture(scope="module")
def pretrained(uninterrupted: Callable[..., Path]) -> Path:
    return uninterrupted(*SHORT, *RANDOM)


def new_task(folder: Path | None, *overrides: str, seed: int = 1) -> Any:
    """A new task of the pretrained kind, with the weights of a pretraining if there is one."""
    torch.manual_seed(seed)
    config = small_config(*SHORT, *RANDOM, *overrides)
    task = build_task(config, build_data(config).spec)
    if folder is not None and (found := Pretrained.find(folder)) is not None:
        Pretrained(found.folder, found.facts, keep_attention="keep" not in "".join(overrides)).load_into(task)
    return task


def test_both_stages_are_in_one_folder_and_the_scores_of_both_in_its_summary(pretrained: Path) -> None:
    summary = read_summary(pretrained)
    assert summary["status"] == "ok"
    assert {"test/accuracy", "pretrain/val/r2", "pretrain/val/r2_beyond_position"} <= summary["metrics"].keys()
    assert summary["pretrain"]["metrics"]["val/r2"] == summary["metrics"]["pretrain/val/r2"]
    assert summary["options"]["pretrain"]["epochs"] == 2
    history = read_metrics(pretrained / "pretrain")
    assert history["val/r2"].notna().sum() >= 2 and "val/accuracy" not in history
    assert "val/accuracy" in read_metrics(pretrained) and "val/r2" not in read_metrics(pretrained)


def test_encoder_embeddings_and_buffers_are_handed_over_and_the_head_is_new(pretrained: Path) -> None:
    saved = read_checkpoint(pretrained / "pretrain" / "checkpoints" / "best.ckpt")["state_dict"]
    fresh, task = new_task(None).state_dict(), new_task(pretrained).state_dict()
    for name, value in task.items():
        kept = name.startswith(("embedding.", "encoder."))
        torch.testing.assert_close(value, saved[f"task.{name}"] if kept else fresh[name], rtol=0, atol=0)
    keys = next(name for name in task if name.endswith("keys"))
    assert not torch.equal(task[keys], fresh[keys])  # the permutation is the one that was pretrained


def test_a_cls_token_is_new() -> None:
    torch.manual_seed(0)
    config = small_config("task.pool=cls")
    task = build_task(config, build_data(config).spec)
    names = task.kept_weights()
    assert "embedding.cls" in task.state_dict() and "embedding.cls" not in names
    assert {"embedding.patches.proj.weight", "encoder.position.table"} <= names


def test_attentions_can_start_anew_while_their_buffers_stay(pretrained: Path) -> None:
    saved = read_checkpoint(pretrained / "pretrain" / "checkpoints" / "best.ckpt")["state_dict"]
    fresh = new_task(None).state_dict()
    task = new_task(pretrained, "pretrain.keep=without_attention").state_dict()
    for name in (name for name in task if ".attention." in name):
        expected = saved[f"task.{name}"] if name.endswith("keys") else fresh[name]
        torch.testing.assert_close(task[name], expected, rtol=0, atol=0)
    torch.testing.assert_close(task["encoder.position.table"], saved["task.encoder.position.table"])


@pytest.mark.parametrize("stage", ["pretraining", pytest.param("training", marks=pytest.mark.slow)])
def test_a_stopped_run_goes_on_in_the_stage_it_was_in(
    stage: str, pretrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch, task = (1, "MaskedModelling") if stage == "pretraining" else (0, "ImageClassification")
    with stopped_at(epoch, 1, task=task):
        run(small_config(*SHORT, *RANDOM), tmp_path)
    assert (Pretrained.find(tmp_path) is None) == (stage == "pretraining")
    starts: list[int] = []
    patched = fitting.fit

    def counted(trainer: Trainer, task: Any, *args: Any) -> None:
        patched(trainer, task, *args)
        starts.append(trainer.global_step)

    monkeypatch.setattr("sliceformer_lab.training.pretraining.pretrain.fit", counted)
    run(small_config(*SHORT, *RANDOM), tmp_path)
    assert len(starts) == (stage == "pretraining")  # a finished pretraining is not repeated
    assert_equal_runs(pretrained, tmp_path, history=False)


def test_a_stopped_pretraining_names_the_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = RunContext(folder=tmp_path / "pretrain", seed=0, monitor=None, monitor_mode="max", resume=tmp_path)
    monkeypatch.setattr("sliceformer_lab.callbacks.guard.any_process", lambda trainer, value: True)
    monkeypatch.setattr("sliceformer_lab.callbacks.guard.catch_signals", lambda later: None)
    with pytest.raises(Interrupted, match=f"resume={tmp_path}$"):
        Guard(context).on_fit_end(Trainer(accelerator="cpu", logger=False), LightningModule())


def test_another_seed_starts_from_a_saved_encoder_and_goes_on_without_it(pretrained: Path, tmp_path: Path) -> None:
    first, folder = tmp_path / "first", tmp_path / "run"
    shutil.copytree(pretrained / "pretrain", first / "pretrain")
    facts = known_json(first / "pretrain" / "pretrain.json")
    facts["metrics"]["val/r2_beyond_position"] = None  # as for pictures that differ nowhere
    write_json(first / "pretrain" / "pretrain.json", facts)
    weights = first / "pretrain" / "checkpoints" / "best.ckpt"
    digest = digest_of(weights)
    config = small_config("pretrain=masked", f"pretrain.path={first}", *RANDOM, "encoder.depth=1", "seed=1")
    with stopped_at(1):
        run(config | {"optim": config["optim"] | {"epochs": 2}}, folder)
    weights.write_text("other weights")
    run(config | {"optim": config["optim"] | {"epochs": 2}}, folder)
    assert not (folder / "pretrain").exists()
    summary, before = read_summary(folder), read_summary(pretrained)
    assert summary["sources"] == {str(first): digest}
    assert summary["pretrain"]["seed"] == 0 and summary["seed"] == 1
    assert summary["metrics"]["pretrain/val/r2"] == before["metrics"]["pretrain/val/r2"]
    assert summary["metrics"]["pretrain/val/r2_beyond_position"] is None
    task = new_task(None)
    load_weights(task, folder / "checkpoints" / "last.ckpt")
    keys = next(name for name in task.state_dict() if name.endswith("keys"))
    saved = read_checkpoint(pretrained / "pretrain" / "checkpoints" / "best.ckpt")["state_dict"]
    torch.testing.assert_close(task.state_dict()[keys], saved[f"task.{keys}"])


def test_a_saved_encoder_that_does_not_fit_is_refused(pretrained: Path) -> None:
    found = Pretrained.find(pretrained)
    found.check_fits(check_config(small_config(*RANDOM)))
    with pytest.raises(RunFolderError, match="pretrained with another attention"):
        found.check_fits(check_config(small_config("attention=mha")))
    with pytest.raises(RunFolderError, match="may have seen test examples"):
        found.check_fits(check_config(small_config(*RANDOM, "data.split_seed=3")))
    with pytest.raises(RunFolderError, match="belongs to another model: it has"):
        new_task(pretrained, "encoder.dim=48")


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("data.test_fraction=0.2", "data.test_fraction=0.3"),
        ("data.split_column=null", "data.split_column=part"),
        ("data.test_file=test.csv", "data.test_file=null"),
        ("data.label_column=a", "data.label_column=b"),
        ("data.labels_separator=null", "data.labels_separator=/"),
    ],
)
def test_a_pretraining_that_held_out_other_examples_of_ones_own_data_is_refused(
    before: str, now: str, tmp_path: Path
) -> None:
    first, later = (plan_of(compose_root(["task=text_csv", "data.file=texts.csv", word])) for word in (before, now))
    found = Pretrained(tmp_path, {"model": first.model.plain, "data": first.plain["data"]})
    found.check_fits(first)
    with pytest.raises(RunFolderError, match=rf"with {before.replace('null', 'None')}, so it may have seen test exam"):
        found.check_fits(later)


def test_a_pretraining_fits_a_run_that_tests_on_a_file_of_its_own(tmp_path: Path) -> None:
    first, later = (
        plan_of(compose_root(["task=text_csv", "data.file=texts.csv", f"data.test_file={name}"]))
        for name in ("one.csv", "two.csv")
    )
    Pretrained(tmp_path, {"model": first.model.plain, "data": first.plain["data"]}).check_fits(later)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A table of sixty texts."""
    file = tmp_path / "texts.csv"
    file.write_text("text,label\n" + "".join(f"word{i} of {'ab'[i % 2]},{i % 2}\n" for i in range(60)))
    return file


def check_texts(before: Path, now: Path, *options: str, batch_size: int = 8) -> None:
    """Checks whether a pretraining on the texts of `before` fits a run on those of `now`. Raises RunFolderError."""
    root = before.parent
    words = ("task=text_csv", f"data.root={root / 'cache'}", "data.batch_size=8", *options)
    plan = plan_of(compose_root([*words, f"data.file={before}"]))
    (root / "checkpoints").mkdir(exist_ok=True)
    if not (file := root / "checkpoints" / "best.ckpt").exists():
        state = build.build_data(plan).state_dict()
        torch.save({"format": 1, "state_dict": {}, "TextCSV": state}, file)
    found = Pretrained(root, {"checkpoint": file.name, "model": plan.model.plain, "data": plan.plain["data"]})
    later = plan_of(compose_root([*words, f"data.file={now}", f"data.batch_size={batch_size}"]))
    found.check_data(later, build.build_data(later))


def test_a_pretraining_whose_tokens_have_other_ids_is_refused(texts: Path) -> None:
    other = texts.with_name("others.csv")
    other.write_text(texts.read_text().replace("word", "name"))
    check_texts(texts, texts)
    with pytest.raises(RunFolderError, match=r"pretrain.path=.* trained with another tokenizer .*data.tokens=bytes"):
        check_texts(texts, other)


def test_a_pretraining_on_bytes_fits_other_texts_but_not_its_own_file_with_other_test_texts(texts: Path) -> None:
    other = texts.with_name("others.csv")
    other.write_text(texts.read_text().replace("word", "name"))
    check_texts(texts, other, "data.tokens=bytes")
    texts.write_text(texts.read_text() + "one more of a,0\n" * 10)
    with pytest.raises(RunFolderError, match=r"test examples have changed since .* may have seen those of this run"):
        check_texts(texts, texts, "data.tokens=bytes", batch_size=16)


def test_a_folder_without_a_finished_pretraining_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="no pretraining has finished there"):
        run(small_config("pretrain=masked", f"pretrain.path={tmp_path / 'none'}"), tmp_path / "run")


def test_a_task_without_inputs_of_its_own_to_mask_names_those_that_have_some() -> None:
    with pytest.raises(ConfigError, match="no inputs to mask; tasks that have: ") as caught:
        check_maskable(check_config(small_config("pretrain=masked", "task=probe_recall")))
    named = set(str(caught.value).rpartition(": ")[2].split(", "))
    apart = {"lra_retrieval", "text_lm"}
    assert named == {name for name in option_names("task") if name not in apart and not name.startswith("probe_")}


@pytest.mark.parametrize("options", [{"mask_rate": 0.0}, {"path": "runs", "epochs": 3}, {"path": "runs", "lr": 0.1}])
def test_options_that_cannot_be_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"mask_rate=0|has no effect"):
        PretrainOptions(**options)


@pytest.mark.parametrize(
    ("overrides", "expected", "steps"),
    [
        ((), {"epochs": 6}, 60),
        (("pretrain.epochs=5", "pretrain.lr=0.01"), {"epochs": 5, "lr": 0.01}, 50),
        (("optim.epochs=null", "optim.steps=40", "optim.val_every=10"), {"steps": 120, "val_every": 10}, 120),
        (("optim.epochs=null", "optim.steps=40", "pretrain.epochs=5"), {"epochs": 5, "steps": None}, 50),
        (("optim.max_steps=7",), {"epochs": 6, "max_steps": 21}, 21),
        (("optim.max_steps=7", "pretrain.epochs=4"), {"epochs": 4, "max_steps": None}, 40),
        (("pretrain=none",), {}, 0),
    ],
)
def test_pretraining_has_three_times_the_passes_unless_it_is_told_otherwise(
    overrides: tuple[str, ...], expected: dict[str, Any], steps: int
) -> None:
    plan = check_config(small_config("pretrain=masked", *overrides))
    assert num_pretraining_steps(plan, 10) == steps
    if expected:
        own = pretraining_plan(plan, plan.pretrain.build())
        assert {name: own.model.optim.option(name) for name in expected} == expected


def test_test_data_and_further_callbacks_take_no_part() -> None:
    plan = check_config(small_config("pretrain=masked", "callbacks=default", "selection=best_test"))
    own = pretraining_plan(plan, PretrainOptions())
    assert own.selection == "best_val" and not build.build_data(own).plan.score_test_each_epoch
    assert "spectrum" in plan.callbacks and "spectrum" not in own.callbacks


@pytest.mark.slow
@pytest.mark.parametrize(
    "task",
    [
        *("cifar10", "mask_folder", "imdb", "text_csv", "lra_text", "lra_listops", "lra_image", "lra_pathfinder"),
        *("qm9_gap", "zinc", "pcqm4m", "molecule_csv", "peptides_func", "peptides_struct"),
        *("modelnet40", "shapenet_part", "point_folder", "series_csv", "series_folder"),
    ],
)
def test_every_modality_is_pretrained_and_trained(task: str, tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    data = ready(task, root)
    given = {name: getattr(data, name) for name in (*SMALL[task].options, "root", "file") if hasattr(data, name)}
    words = [f"data.{name}={value}" for name, value in {**given, "download": False, "verify": False}.items()
             if name in small_config(f"task={task}")["data"]]  # fmt: skip
    if "cache" in small_config(f"task={task}")["data"]:
        words.append(f"data.cache={root.with_name('data_cache')}")
    options = ["optim.epochs=1", "optim.steps=null", "optim.val_every=null", "optim.max_steps=2", "data.batch_size=2"]
    config = small_config(
        "pretrain=masked", f"task={task}", *words, *options, "data.limit_train=null", "reference=null"
    )
    run(config, tmp_path / "run")
    metrics = read_summary(tmp_path / "run")["metrics"]
    assert "pretrain/val/loss" in metrics
    assert metrics.keys() & {f"pretrain/val/{name}" for name in ("accuracy", "r2", "chamfer")}


@pytest.mark.slow
def test_without_mixing_nothing_beyond_the_position_is_found(tmp_path: Path) -> None:
    """The control of the measure: identity stays at 0, and attention is clearly above it."""
    found = {}
    for name in ("identity", "mha"):
        words = (f"attention={name}", "optim.epochs=10", "data.limit_train=null", "encoder.position_std=1.0")
        run(small_config("pretrain=masked", *words), tmp_path / name)
        found[name] = read_summary(tmp_path / name)["metrics"]["pretrain/val/r2_beyond_position"]
    assert found["identity"] < 0.03 and found["mha"] > 0.15
