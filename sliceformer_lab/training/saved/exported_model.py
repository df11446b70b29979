"""A model as weights and configuration in a folder, apart from its run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from sliceformer_lab.config.checked import check_model
from sliceformer_lab.config.schema import MODEL_NODES, allowed_targets, check_node
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.errors import RunFolderError
from sliceformer_lab.runs.files import whole_file, write_json
from sliceformer_lab.runs.folder import FORMAT, refuse_other_format
from sliceformer_lab.training.build import build_model
from sliceformer_lab.training.interfaces import TaskModule
from sliceformer_lab.training.saved.saved_run import Run

WEIGHTS, CONFIG = "model.safetensors", "config.json"


def save_export(folder: Path, run: Run) -> None:
    """Writes the weights and the configuration of a run's model into an existing folder."""
    weights = {name: tensor.clone().contiguous() for name, tensor in run.model.state_dict().items()}
    with whole_file(folder / WEIGHTS) as unfinished:
        save_file(weights, unfinished)
    nodes = {name: run.config[name] for name in ("task", *MODEL_NODES)}
    write_json(folder / CONFIG, {"format": FORMAT, "nodes": nodes, "data": asdict(run.spec)})


def load_export(folder: str | Path, allow_targets: Sequence[str] = ()) -> TaskModule:
    """The model in a folder that `export format=safetensors` wrote, in evaluation mode; call it with a `Batch`.

    A model of the user's own code needs `allow_targets`, as in `load_run`. Raises RunFolderError if the folder holds
    none, and ConfigError for code that is not allowed.
    """
    path = Path(folder)
    try:
        content = json.loads((path / CONFIG).read_text(encoding="utf-8"))
        weights = load_file(path / WEIGHTS)
        refuse_other_format(content, path)
        nodes, sizes = content["nodes"], content["data"]
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise RunFolderError(f"{path} holds no exported model ({error})") from error
    with allowed_targets(list(allow_targets)):
        task = build_model(check_node(nodes["task"], "task"), check_model(nodes), DataSpec.from_json(sizes))
    task.load_state_dict(weights)
    return task.eval()
