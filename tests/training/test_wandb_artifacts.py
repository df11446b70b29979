"""Which artifacts a run uploads; test_wandb.py opens them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.runs import SMALL, last_of_each
from support.wandb_server import wandb_server

from sliceformer_lab.__main__ import main


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
