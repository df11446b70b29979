"""A run's folder: its lock, configuration, summary and predictions, and how to read them again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from filelock import FileLock, Timeout
from omegaconf import OmegaConf

from sliceformer_lab.errors import RunFolderError

if TYPE_CHECKING:  # the command line reads configurations through here and must not wait for torch
    import pandas as pd
    import torch
    from torch import Tensor

CONFIG, SUMMARY, PREDICTIONS = "config.yaml", "summary.json", "predictions.npz"


@contextmanager
def claimed(folder: Path) -> Iterator[Path]:
    """The folder, held by this process alone. Raises RunFolderError if another live process holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise RunFolderError(
            f"{folder} is held by another live process; wait for it, stop it, or choose another folder"
        ) from None
    try:
        yield folder
    finally:
        lock.release()


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file whole or not at all."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def write_predictions(folder: Path, predictions: Mapping[str, Mapping[str, Tensor]]) -> None:
    """predictions.npz, whole or not at all: {val,test}_{ids,targets,logits}."""
    arrays = {f"{split}_{name}": part.numpy() for split, parts in predictions.items() for name, part in parts.items()}
    unfinished = folder / f"unfinished-{PREDICTIONS}"
    np.savez_compressed(unfinished, allow_pickle=False, **arrays)
    unfinished.replace(folder / PREDICTIONS)


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration of a run. Raises RunFolderError if the folder holds none."""
    file = folder / CONFIG
    if not file.is_file():
        raise RunFolderError(f"{folder} is not a run folder: it has no {CONFIG}")
    config = OmegaConf.to_container(OmegaConf.load(file))
    if not isinstance(config, dict):
        raise RunFolderError(f"{file} does not hold a configuration")
    return {str(key): value for key, value in config.items()}


def read_summary(folder: Path) -> dict[str, Any]:
    """summary.json of a run. Raises RunFolderError if it is missing or half written."""
    try:
        content: dict[str, Any] = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{folder / SUMMARY} cannot be read ({error})") from error
    return content


def is_finished(folder: Path) -> bool:
    """Whether the folder holds a run that ended well."""
    return (folder / SUMMARY).is_file() and read_summary(folder)["status"] == "ok"


def checkpoint_file(folder: Path, name: str) -> Path | None:
    """FOLDER/checkpoints/NAME.ckpt if it is there."""
    file = folder / "checkpoints" / f"{name}.ckpt"
    return file if file.is_file() else None


def scored_checkpoint(config: Mapping[str, Any], folder: Path) -> Path:
    """The checkpoint that the selection rule scores. Raises RunFolderError if the run has none."""
    name = "last" if config["selection"] == "last" else "best"
    file = checkpoint_file(folder, name)
    if file is None:
        raise RunFolderError(f"{folder} has no checkpoints/{name}.ckpt: the run has not finished an epoch")
    return file


def read_checkpoint(file: Path) -> dict[str, Any]:
    """A checkpoint's content: tensors and plain values only. Raises RunFolderError if it is damaged or hostile."""
    import torch

    try:
        content: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        raise RunFolderError(
            f"{file} cannot be read as a checkpoint ({type(error).__name__}): it is truncated or holds more than "
            "tensors and plain values; delete it and resume again to train from the start"
        ) from error
    if "state_dict" not in content:
        raise RunFolderError(f"{file} holds no model (no state_dict)")
    return content


def load_weights(model: torch.nn.Module, file: Path) -> None:
    """Put a checkpoint's weights into `model`. Raises RunFolderError if they are another model's."""
    try:
        model.load_state_dict(read_checkpoint(file)["state_dict"])
    except RuntimeError as error:
        reasons = [line.strip() for line in str(error).splitlines()[1:3]]
        raise RunFolderError(f"{file} belongs to another model: {' '.join(reasons)}") from error


@dataclass(frozen=True)
class Run:
    """One run folder, read lazily."""

    folder: Path

    @cached_property
    def config(self) -> dict[str, Any]:
        """Its resolved configuration."""
        return read_config(self.folder)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """summary.json."""
        return read_summary(self.folder)

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """Everything that was logged, a row per step."""
        from sliceformer_lab.loggers import read_metrics

        return read_metrics(self.folder)

    @cached_property
    def predictions(self) -> dict[str, np.ndarray[Any, Any]]:
        """val_ids, val_targets, val_logits and the same of test, from the scored checkpoint."""
        with np.load(self.folder / PREDICTIONS) as arrays:
            return {name: arrays[name] for name in arrays.files}

    @cached_property
    def data(self) -> Any:
        """The data module, not yet prepared: call `prepare_data()` and `setup()`."""
        from sliceformer_lab.build import build_data

        return build_data(self.config)

    @cached_property
    def model(self) -> Any:
        """The task with the weights of the scored checkpoint, in evaluation mode."""
        from sliceformer_lab.build import build_task

        task = build_task(self.config, self.data.spec)
        load_weights(task, scored_checkpoint(self.config, self.folder))
        return task.eval()


def load_run(folder: str | Path) -> Run:
    """A finished or running run, for a notebook. Raises RunFolderError if the folder is not a run's."""
    path = Path(folder)
    read_config(path)
    return Run(path)
