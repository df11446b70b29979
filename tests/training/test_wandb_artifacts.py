"""Which artifacts a run uploads; test_wandb.py opens them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.runs import SMALL, last_of_each
from support.wandb_server import wandb_server

from sliceformer_lab.__main__ import main
from sliceformer_lab.training.results.wandb_artifacts import read_predictions


@pytest.mark.parametrize(
    ("which", "kinds"),
    [("none", set()), pytest.param("all", {"model", "predictions", "checkpoints"}, marks=pytest.mark.slow)],
)
def test_nothing_is_uploaded_unless_it_is_asked_for(which: str, kinds: set[str], tmp_path: Path) -> None:
    words = last_of_each([*SMALL, "encoder.depth=1", "optim.epochs=1", "logger=wandb", f"logger.artifacts={which}"])
    with wandb_server() as server:
        assert main([*words, f"hydra.run.dir={tmp_path / 'run'}"]) == 0
    found = {artifact["artifactTypeName"] for artifact in server.artifacts.values()}
    assert found & {"model", "predictions", "checkpoints"} == kinds


@pytest.mark.parametrize("names", [["01", "02"], ["NA", "null"]])
def test_classes_that_look_like_numbers_or_gaps_keep_their_names(names: list[str], tmp_path: Path) -> None:
    file = tmp_path / "predictions.csv"
    rows = [f"test,{name},{name},{name},{rest}" for name, rest in zip(names, ("0.25,", "0.5,2"), strict=True)]
    file.write_text("\n".join(["split,text,target,prediction,probability_01,target_gap", *rows]))
    table = read_predictions(file)
    assert all(table[column].tolist() == names for column in ("text", "target", "prediction"))
    assert table["probability_01"].tolist() == [0.25, 0.5] and table["target_gap"].isna().tolist() == [True, False]
