"""The artifacts of a run: its model, its predictions and checkpoints, with the digests of the data."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.runs import SMALL, last_of_each
from support.wandb_server import WandbServer, wandb_server

import sliceformer_lab
from sliceformer_lab.__main__ import main
from sliceformer_lab.runs.folder import read_summary


def train(folder: Path, *options: str) -> WandbServer:
    """The server after a run in `folder`."""
    words = last_of_each([*SMALL, "encoder.depth=1", "optim.epochs=1", "logger=wandb", *options])
    with wandb_server() as server:
        assert main([*words, f"hydra.run.dir={folder}"]) == 0
    assert read_summary(folder)["status"] == "ok"
    return server


def test_the_best_model_opens_from_its_artifact_and_names_its_data(tmp_path: Path) -> None:
    server = train(tmp_path / "run", "logger.artifacts=best")
    logged = {artifact["artifactTypeName"]: artifact for artifact in server.artifacts.values()}
    assert {"model", "predictions", "dataset"} <= set(logged) and "checkpoints" not in logged
    model, data = logged["model"], logged["dataset"]
    assert "best" in [alias["alias"] for alias in model["aliases"]] and model["committed"]
    digests = read_summary(tmp_path / "run")["digests"]
    assert digests["test"] in data["metadata"] and digests["test"] in model["metadata"]
    assert server.artifacts[server.used_artifacts[0]] is data
    for name in model["files"]:
        (tmp_path / name).write_bytes(model["contents"][name])
    opened = sliceformer_lab.load_export(tmp_path)
    expected = sliceformer_lab.load_run(tmp_path / "run").model
    example = expected.example()
    torch.testing.assert_close(opened(example), expected(example), rtol=0, atol=0)
    (table,) = [name for name in logged["predictions"]["files"] if name.endswith(".table.json")]
    assert b"probability_0" in logged["predictions"]["contents"][table]


@pytest.mark.parametrize(
    ("which", "kinds"),
    [("none", set()), pytest.param("all", {"model", "predictions", "checkpoints"}, marks=pytest.mark.slow)],
)
def test_nothing_is_uploaded_unless_it_is_asked_for(which: str, kinds: set[str], tmp_path: Path) -> None:
    server = train(tmp_path / "run", f"logger.artifacts={which}")
    found = {artifact["artifactTypeName"] for artifact in server.artifacts.values()}
    assert found & {"model", "predictions", "checkpoints"} == kinds
