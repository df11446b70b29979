"""Writes and reads the files of a run folder: lock, configuration, summary, metrics, predictions, checkpoints."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from filelock import FileLock, Timeout
from omegaconf import OmegaConf

from sliceformer_lab.errors import RunFolderError, machine_error
from sliceformer_lab.runs.files import is_locked, whole_bytes, write_text
from sliceformer_lab.runs.run_summary import RunSummary, parse_summary
from sliceformer_lab.runs.saved_yaml import read_yaml, refuse_interpolations
from sliceformer_lab.runs.score_options import identity_of

if TYPE_CHECKING:  # the command line uses this module before it imports torch
    import pandas as pd
    import torch
    from torch import Tensor

log = logging.getLogger(__name__)

CONFIG, SUMMARY, PREDICTIONS = "config.yaml", "summary.json", "predictions.npz"
CHILD_CONFIG = ".processes.yaml"  # what the other processes of a run read
LAST_PICTURES = ("curves.png", "spectrum.png")  # those of the training
FORMAT = 1  # of a run folder: its configuration, summary and checkpoints; a change that old readers miss raises it
LOCK = ".lock"
LOCK_TIMEOUT_S = 1.0  # seconds to wait for a lock: others hold it for a moment to see whether it is free
LAST, PREVIOUS, BEST = "last.ckpt", "previous.ckpt", "best.ckpt"  # in FOLDER/checkpoints
CHECKPOINTS = (LAST, PREVIOUS, BEST)  # in the order in which a run goes on from them
IDENTITY_KEY = "run"  # key of a checkpoint: the `identity_of` the run that saved it


@contextmanager
def lock_folder(folder: Path) -> Iterator[Path]:
    """Creates the folder and locks it for this process, which may lock it again inside.

    Raises RunFolderError if another live process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder.resolve() / LOCK
    if file.is_symlink() or (file.exists() and not file.is_file()):
        raise RunFolderError(f"{file} is no lock of a run, but a link, a folder or a device; delete it")
    lock = FileLock(file, is_singleton=True)
    try:
        lock.acquire(timeout=LOCK_TIMEOUT_S)
    except Timeout:
        raise RunFolderError(
            f"{folder} is held by another live process; wait for it, stop it, or choose another folder"
        ) from None
    try:
        yield folder
    finally:
        lock.release()


def remove_unstarted(folder: Path) -> None:
    """Removes the files of a run that never trained a step; leaves a folder in which there is anything else."""
    summary = known_summary(folder)
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    written = {CONFIG, SUMMARY, CHILD_CONFIG, LOCK, "sliceformer_lab.log"}
    has_trained = summary is not None and any(start.from_step is not None for start in summary.starts)
    if names <= written and not has_trained:
        shutil.rmtree(folder, ignore_errors=True)


def is_held(folder: Path) -> bool:
    """Whether a live process holds the run folder. The answer may be late on a disk that several machines share."""
    return is_locked(folder / LOCK)


def write_predictions(
    folder: Path, predictions: Mapping[str, Mapping[str, Tensor]], words: Mapping[str, np.ndarray[Any, Any]]
) -> None:
    """Writes predictions.npz: {val,test}_{ids,targets,logits}, and `words`, arrays of names and places."""
    arrays = {f"{split}_{name}": part.numpy() for split, parts in predictions.items() for name, part in parts.items()}
    arrays |= words
    with whole_bytes(folder / PREDICTIONS) as file:
        # without allow_pickle, an array of this name to NumPy before 2.1
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def runs_below(folder: Path) -> str:
    """Which run folders lie below a folder that is none, at most three floors, for its error; empty without one."""
    depths = ("*", "*/*", "*/*/*")
    found = sorted(file.parent for depth in depths for file in folder.glob(f"{depth}/{CONFIG}"))
    if not found:
        return ""
    newest = max(found, key=lambda run: (run / CONFIG).stat().st_mtime)
    return f"; below it are {len(found):,}, the newest {newest}" if len(found) > 1 else f"; below it is {newest}"


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration of a run; every saved configuration is read here.

    It is data: no interpolation is resolved in it. Raises RunFolderError if the folder holds none, or another format.
    """
    file = folder / CONFIG
    if not file.is_file():
        raise RunFolderError(f"{folder} is not a run folder: it has no {CONFIG}{runs_below(folder)}")
    config = read_yaml(file)
    refuse_interpolations(config, file)
    refuse_other_format(config, folder)
    return {key: value for key, value in config.items() if key != "format"}


def read_summary(folder: Path) -> RunSummary:
    """The content of summary.json. Raises RunFolderError if the file is missing, malformed or of another format."""
    try:
        content = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RunFolderError(f"{folder / SUMMARY} cannot be read ({error})") from error
    try:
        summary = parse_summary(content)
    except ValueError as error:
        raise RunFolderError(f"{folder / SUMMARY} is not the summary of a run: {error}") from error
    refuse_other_format(content, folder)
    return summary


def known_summary(folder: Path) -> RunSummary | None:
    """The content of summary.json; None if there is none that can be read."""
    try:
        return read_summary(folder)
    except RunFolderError:
        return None


def refuse_other_format(content: Mapping[str, Any], place: Path) -> None:
    """Raises RunFolderError if what is saved at a place has another format than what this version writes."""
    if content.get("format") != FORMAT:
        raise RunFolderError(
            f"{place} was saved in format {content.get('format')}, and this version reads format {FORMAT}; use the "
            "version that wrote it, or train again"
        )


def pictures_in(folder: Path) -> list[Path]:
    """The pictures of a run, those of its results first."""
    found = (file for file in folder.glob("*.png") if re.fullmatch(r"[a-z0-9_]+\.png", file.name) and file.is_file())
    return sorted(found, key=lambda file: (file.name in LAST_PICTURES, file.name))


def recorded_digests(folder: Path) -> dict[str, str]:
    """The digests of the data of a run by split, from its summary or else a checkpoint; {} before the first."""
    summary = known_summary(folder)
    found = summary.digests if summary is not None else {}
    return found or recorded_data(folder).get("digests", {})


def recorded_data(folder: Path) -> dict[str, Any]:
    """What the checkpoints of a run keep of its data; {} if none can be read."""
    for file in (folder / "checkpoints" / name for name in CHECKPOINTS):
        with suppress(RunFolderError):  # of a damaged one, beside which another may be whole
            if file.is_file() and (state := _data_in(read_checkpoint(file))):
                return state
    return {}


def _data_in(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    states = (state for state in checkpoint.values() if isinstance(state, dict) and "digests" in state)
    return dict(next(states, {}))


def recorded_choices(folder: Path) -> list[str]:
    """The options of a run that were chosen from its data, as places such as data.batch_size."""
    summary = known_summary(folder)
    return [choice.option for choice in summary.choices] if summary is not None else []


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """Writes config.yaml, and the copy that the other processes of a run read."""
    write_text(folder / CONFIG, f"format: {FORMAT}\n{write_child_config(folder, config)}")


def write_child_config(folder: Path, config: Mapping[str, Any]) -> str:
    """Writes the configuration that the other processes of a run read, and returns the text."""
    folder.mkdir(parents=True, exist_ok=True)
    text = OmegaConf.to_yaml(OmegaConf.create(dict(config)))
    write_text(folder / CHILD_CONFIG, text)
    return text


def read_child_config(folder: Path) -> dict[str, Any]:
    """The configuration that the first process of a run wrote for the others. Raises RunFolderError."""
    return read_yaml(folder / CHILD_CONFIG)


def read_metrics(folder: Path) -> pd.DataFrame:
    """All metrics of a run, one row per logging step. Steps that a resumed run repeated appear once, as repeated."""
    import pandas as pd

    files = sorted((folder / "csv").glob("version_*/metrics.csv"), key=lambda f: int(f.parent.name.split("_")[1]))
    history = pd.DataFrame()
    for file in files:
        if file.stat().st_size and len(table := pd.read_csv(file)):  # a kill may leave the header alone
            earlier = history[history["step"] < table["step"].min()] if len(history) else history
            history = pd.concat([earlier, table], ignore_index=True)
    return history


def is_finished(folder: Path) -> bool:
    """Whether the folder holds a run that finished without an error. A damaged summary says nothing of that."""
    summary = known_summary(folder)
    return summary is not None and summary.status == "ok"


def resumable_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint that can be read and holds finite weights: the last, the previous or the best one.

    None if there is no checkpoint. Raises RunFolderError if none of them can be used.
    """
    faults: list[str] = []
    for file in (folder / "checkpoints" / name for name in CHECKPOINTS):
        if not file.is_file():
            continue
        try:
            _check_finite(file)
        except RunFolderError as error:
            faults.append(str(error))
            continue
        for fault in faults:
            log.warning(f"WARNING: {fault}; going on from {file.name} instead")
        return file
    if faults:
        raise RunFolderError(f"{faults[0]}; no other checkpoint can be used: delete them to train from the start")
    return None


def _check_finite(file: Path) -> None:
    """Raises RunFolderError if a checkpoint cannot be read or holds NaN or infinite weights."""
    weights = read_checkpoint(file)["state_dict"].values()
    if not all(bool(w.isfinite().all()) for w in weights if w.is_floating_point()):
        raise RunFolderError(f"{file} holds NaN or infinite weights")


def scored_checkpoint(selection: str, folder: Path) -> Path:
    """The checkpoint that the selection rule picks. Raises RunFolderError if the run has none."""
    file = folder / "checkpoints" / (LAST if selection == "last" else BEST)
    if not file.is_file():
        raise RunFolderError(
            f"{folder} has no checkpoints/{file.name}: the run has not finished an epoch, or tried one batch only "
            "(debug=fast)"
        )
    return file


def read_checkpoint(file: Path) -> dict[str, Any]:
    """The content of a checkpoint.

    Raises RunFolderError if it is damaged, of another format, or holds more than plain values.
    """
    import torch

    try:
        content: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        raise machine_error(error) or RunFolderError(
            f"{file} cannot be read as a checkpoint ({type(error).__name__}): it is truncated or holds more than "
            "tensors and plain values"
        ) from error
    if not isinstance(content, dict) or "state_dict" not in content:
        raise RunFolderError(f"{file} holds no model (no state_dict)")
    refuse_other_format(content, file)
    return content


def load_weights(model: torch.nn.Module, file: Path) -> None:
    """Loads the weights of a run's checkpoint into `model`. Raises RunFolderError if they are those of another run."""
    content = read_checkpoint(file)
    _check_identity(content, file)
    try:
        model.load_state_dict(content["state_dict"])
    except RuntimeError as error:
        reasons = [line.strip() for line in str(error).splitlines()[1:3]]
        raise RunFolderError(f"{file} belongs to another model: {' '.join(reasons)}") from error


def _check_identity(checkpoint: Mapping[str, Any], file: Path) -> None:
    """Raises RunFolderError if the run that saved a checkpoint had another configuration or other data than its folder.

    The folder of a stage, such as a pretraining, has none.
    """
    folder = file.parent.parent
    theirs = checkpoint.get(IDENTITY_KEY)
    if theirs is None or not (folder / CONFIG).is_file():
        return
    ours = identity_of(read_config(folder))
    if others := [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]:
        name = others[0]
        raise RunFolderError(
            f"{file} is the checkpoint of another run: its {name} is {theirs.get(name)}, and {folder / CONFIG} has "
            f"{ours.get(name)}; put the run's own checkpoint back"
        )
    summary, trained = known_summary(folder), _data_in(checkpoint).get("digests", {}).get("train")
    if summary is None or any(start.changed_data for start in summary.starts):
        return
    if trained and summary.digests.get("train", trained) != trained:
        raise RunFolderError(
            f"{file} is the checkpoint of another run: it was trained on other data than {folder / SUMMARY} records; "
            "put the run's own checkpoint back"
        )
