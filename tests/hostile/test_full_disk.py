"""Short runs on a disk that is full from the n-th write on, or for that write: each ending is recorded."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from support.full_disk import Ending, endings

from sliceformer_lab.runs.folder import read_checkpoint, read_config, read_metrics
from sliceformer_lab.training.results.prediction_table import read_preprocessing

UNRECORDED = 2  # writes before the folder holds a run: .hydra/config.yaml and the spare space

needs_preload = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="preloads a C library, which Linux and cc can"
)


def assert_readable(folder: Path) -> None:
    """Every file that a run has left can be read, and no part of one is left."""
    for file in (path for path in folder.rglob("*") if path.is_file()):
        assert ".unfinished" not in file.name and file.name != ".spare"
        if file.suffix == ".ckpt":
            assert read_checkpoint(file)["state_dict"]
        elif file.suffix == ".npz":
            with np.load(file) as arrays:
                assert all(arrays[name].size for name in arrays)
    if (folder / "config.yaml").is_file():
        assert read_config(folder)["seed"] == 0
    assert all(read_metrics(folder).columns == sorted(read_metrics(folder).columns))
    read_preprocessing(folder)


def assert_recorded(ending: Ending) -> None:
    """The exit code, the status and the text on the terminal agree; there is no traceback."""
    folder, lines = Path(ending.folder), ending.said.strip().splitlines()
    assert "Traceback" not in ending.said and "--- Logging error" not in ending.said
    if not (folder / "summary.json").exists():
        assert ending.code == 1 and ending.nth <= UNRECORDED
    else:
        text = (folder / "summary.json").read_text()
        summary = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
        assert summary["status"] == ("failed" if ending.code else "ok")
        assert not ending.code or "No space left on device" in summary["error"]
    if ending.code:
        assert lines[-1].startswith("sliceformer-lab: ") and "No space left on device; free some space" in lines[-1]
        assert sum("No space left" in line for line in lines) <= 3  # the error, the metrics and the spectrum
    assert_readable(folder)


@needs_preload
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_full_disk_at_any_write_leaves_a_status_and_only_readable_files(tmp_path: Path) -> None:
    whole, *others = endings(tmp_path)
    assert whole.code == 0
    assert_recorded(whole)
    for ending in others:
        assert_recorded(ending)
    assert len(others) > 30
