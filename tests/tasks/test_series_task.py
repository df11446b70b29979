"""Series: a token does not depend on padding, and a run trains, scores, draws, predicts and exports."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd
import pytest
import torch
from support import series_files
from support.plans import small_task
from support.run_folders import read_summary

from sliceformer_lab.__main__ import main
from sliceformer_lab.batch import Padding
from sliceformer_lab.data.cache import manifest
from sliceformer_lab.encoder.series_embed import SeriesEmbedding
from sliceformer_lab.training.saved.saved_run import load_run

QUICK = ["callbacks=minimal", "encoder.dim=16", "encoder.depth=1", "encoder.mlp_dim=16", "encoder.num_heads=2"]


@pytest.mark.parametrize(("stem", "patch_len"), [("patch", 4), ("conv", 4), ("conv", 24), ("conv", 17)])
def test_a_token_does_not_depend_on_padding(stem: str, patch_len: int) -> None:
    torch.manual_seed(0)
    embedding = SeriesEmbedding(patch_len, 2, 16, stem=stem, cls=False)  # type: ignore[arg-type]
    width = 2 * patch_len
    short = torch.randn(1, 5, width)
    padded = torch.cat([torch.cat([short, torch.zeros(1, 4, width)], dim=1), torch.randn(1, 9, width)])
    padding = Padding.from_lengths(torch.tensor([5, 9]), 9)
    torch.testing.assert_close(embedding(padded, padding)[:1, :5], embedding(short))


@pytest.mark.parametrize(
    ("patch_len", "places"), [(1, 1), (7, 7), (8, 8), (15, 15), (16, 8), (56, 8), (53, 53), (36, 9)]
)
def test_the_convolutions_keep_eight_places_of_a_long_patch(patch_len: int, places: int) -> None:
    embedding = SeriesEmbedding(patch_len, 1, 4, stem="conv", cls=False)
    assert embedding.tokens.in_features == 4 * places
    assert embedding(torch.randn(2, 3, patch_len)).shape == (2, 3, 4)


def run(folder: Path, *words: str) -> Path:
    """The folder of a run, which takes a few seconds."""
    places = [f"paths.data={folder}/data", f"hydra.run.dir={folder}/run", "optim.steps=30", "optim.val_every=15"]
    assert main([*words, *places, *QUICK, "optim.lr=1e-2", "attention=csp"]) == 0
    return folder / "run"


def test_a_run_on_a_table_learns_draws_predicts_and_exports_and_takes_no_coding_of_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = series_files.ucr(tmp_path / "mine")
    new = series_files.ucr(tmp_path / "mine", 4, "new.txt")
    folder = run(tmp_path, "task=series_csv", f"data.file={file}", "reference=null")
    assert read_summary(folder)["metrics"]["test/accuracy"] > 0.8
    assert (folder / "confusion.png").is_file()
    new.write_text(new.read_text() + "1 2 3\n")
    hidden = file.rename(tmp_path / "elsewhere.txt")
    assert main(["predict", f"resume={folder}", f"input={new}"]) == 0
    hidden.rename(file)
    table = pd.read_csv("predictions.csv", keep_default_na=False)
    assert table["prediction"].tolist()[:4] == ["1", "2", "1", "2"] and (table["error"][:4] == "").all()
    assert table["place"][4] == "new.txt, line 5" and "has 3 fields" in table["error"][4]
    assert main(["export", f"resume={folder}", "format=torch_export"]) == 0
    card = (folder / "export" / "torch_export" / "README.md").read_text()
    assert "standardise each channel" in card and (folder / "export" / "torch_export" / "series.json").is_file()
    coding = json.loads((folder / "series.json").read_text())
    (folder / "series.json").write_text(json.dumps(coding | {"mean": [coding["mean"][0] + 1]}))
    for words in (["predict", f"input={new}", "output=again.csv"], ["export", "format=safetensors"]):
        assert main([*words, f"resume={folder}"]) == 1
        assert "series.json is not that with which the checkpoint was trained" in capsys.readouterr().err
    assert not Path("again.csv").exists() and not (folder / "export" / "safetensors").exists()


@pytest.mark.parametrize("unit", [1.0, 1e-15])
def test_simple_models_learn_the_classes_of_series_in_any_unit(unit: float, tmp_path: Path) -> None:
    data = series_files.table(series_files.ucr(tmp_path))
    task = small_task("task=series_csv", data=data.spec)
    rows = {stage: list(range(len(split))) for stage, split in data.splits.items()}
    contents = {
        stage: [unit * cast(np.ndarray, example.content) for example in data.examples(stage, own)]
        for stage, own in rows.items()
    }
    targets = {stage: data.splits[stage].targets_at(own).numpy() for stage, own in rows.items()}
    models = task.simple_models(data, len(rows["train"]))
    assert [model.name.partition(" +")[0] for model in models] == ["spectra", "time warping", "random convolutions"]
    for model in models:
        far = {"val": [9 * series for series in contents["val"]]}  # which change no answer to others
        parts = [{"test": contents["test"], **more} for more in ({}, far)]
        found, again = (model.fit_and_predict(contents["train"], targets["train"], part)["test"] for part in parts)
        np.testing.assert_array_equal(found, again)
        assert (found.argmax(axis=1) == targets["test"]).mean() > 0.8, model.name


@pytest.mark.slow
def test_a_run_on_times_learns_numbers(tmp_path: Path) -> None:
    file = series_files.long_table(tmp_path / "mine")
    words = ["data.label_column=level", "data.id_column=run", "data.time_column=day", "data.split_column=part"]
    folder = run(tmp_path, "task=series_csv", f"data.file={file}", *words)
    summary = read_summary(folder)
    assert summary["metrics"]["test/mae"] < summary["chance"] and summary["metrics"]["test/r2"] > 0
    assert summary["references"][0]["name"] == "training median" and len(summary["references"]) == 4
    assert (folder / "predicted.png").is_file() and (folder / "mistakes.png").is_file()
    assert list(pd.read_csv(folder / "predictions.csv").columns) == [
        *("split", "place", "target_level", "prediction_level")
    ]
    days = pd.read_csv(file)
    days[days["day"].str[-1].isin(list("13579"))].to_csv(file, index=False)
    assert main(["mode=eval", f"resume={folder}"]) == 0
    steps = [manifest(each)["key"]["columns"].get("step") for each in (tmp_path / "data").rglob("series_csv-*")]
    assert sorted(steps, key=str) == [86400.0, None], "the step of training holds in the changed table"


@pytest.mark.slow
def test_a_run_on_sounds_predicts_new_sounds_without_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    series_files.sounds(tmp_path / "tones")
    shutil.copytree(tmp_path / "tones", tmp_path / "new")
    folder = run(tmp_path, "task=series_folder", f"data.root={tmp_path / 'tones'}", "data.processes=1")
    shutil.rmtree(tmp_path / "tones")
    shutil.rmtree(tmp_path / "data")
    (tmp_path / "new" / "low" / "bad.wav").write_bytes(b"RIFF")
    assert main(["predict", f"resume={folder}", f"input={tmp_path / 'new'}"]) == 0
    table = pd.read_csv("predictions.csv", keep_default_na=False)
    bad = table["place"] == "low/bad.wav"
    assert (table["prediction"][~bad] == table["place"][~bad].str.partition("/")[0]).mean() > 0.9
    assert "cannot be read as .wav" in table["error"][bad].item()
    tone = np.sin(2 * np.pi * 300 * np.arange(900) / series_files.RATE).astype(np.float32)
    assert load_run(folder).predict([tone])["prediction"].item() == "low"
