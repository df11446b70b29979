"""A run's model and predictions as W&B artifacts, which name the data that they are of."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pandas as pd
import wandb

from sliceformer_lab.config.schema import allowed_too
from sliceformer_lab.runs.folder import CONFIG, SUMMARY, read_summary
from sliceformer_lab.training.results.prediction_table import PREPROCESSING, TABLE
from sliceformer_lab.training.saved.exported_model import save_export
from sliceformer_lab.training.saved.saved_run import load_run

TEXT_COLUMNS = {"split", "place", "text", "smiles", "target", "prediction"}  # of predictions.csv; others hold numbers


def log_artifacts(run: Any, folder: Path, which: Literal["best", "all"]) -> None:
    """Logs the scored model as safetensors (alias `best`) and its predictions; `all`: the checkpoints too.

    The run uses an artifact of the data, which holds the digests of its splits: in a file, because a server takes two
    artifacts of one content for one version, whatever their metadata are.
    """
    summary = read_summary(folder)
    data, digests = summary.protocol.data, summary.digests
    metadata = {"data": data, "sha256": digests, "git_commit": summary.git_commit, **summary.metrics}
    card = f"{summary.attention} on {summary.task}, seed {summary.seed}; sliceformer_lab.load_export opens it."
    model = wandb.Artifact(f"model-{run.id}", type="model", description=card, metadata=metadata)
    with TemporaryDirectory() as exported:
        save_export(Path(exported), load_run(folder, allowed_too()))
        model.add_dir(exported)
        for name in (CONFIG, SUMMARY, PREPROCESSING):
            model.add_file(str(folder / name))
        run.log_artifact(model, aliases=["best"])
    predictions = wandb.Artifact(f"predictions-{run.id}", type="predictions", metadata=metadata)
    predictions.add(wandb.Table(dataframe=read_predictions(folder / TABLE)), "predictions")
    run.log_artifact(predictions)
    if which == "all":
        checkpoints = wandb.Artifact(f"checkpoints-{run.id}", type="checkpoints", metadata=metadata)
        checkpoints.add_dir(str(folder / "checkpoints"))
        run.log_artifact(checkpoints)
    if not run.offline:  # W&B's client has no lineage offline
        used = wandb.Artifact(f"data-{data}", type="dataset", metadata={"sha256": digests})
        with used.new_file("digests.json") as file:
            json.dump(digests, file)
        run.use_artifact(used)


def read_predictions(file: Path) -> pd.DataFrame:
    """The rows of a predictions.csv: names and texts as they were written, and numbers, NaN if unknown.

    A class may be called 01 or NA, which pandas would take for a number or a gap.
    """
    table = pd.read_csv(file, dtype=str, keep_default_na=False)
    for name in table.columns.difference(list(TEXT_COLUMNS)):
        table[name] = pd.to_numeric(table[name])
    return table
