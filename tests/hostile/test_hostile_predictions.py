"""Predictions and plans from strangers in a report: what cannot be read is left out by name, and the report goes on."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.run_folders import write_predictions, write_run

from sliceformer_lab.__main__ import main

RIGHT = np.ones(20, dtype=bool)


def archive(**entries: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for name, entry in entries.items():
            file.writestr(f"{name}.npy", entry)
    return content.getvalue()


def array(values: object, **options: bool) -> bytes:
    content = io.BytesIO()
    np.save(content, np.asarray(values), **options)
    return content.getvalue()


def header(shape: str, dtype: str = "<i8") -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}}}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def parts(**changes: bytes) -> bytes:
    ids, targets, logits = array(np.arange(20)), array(np.arange(20) % 2), array(np.eye(2)[np.arange(20) % 2])
    return archive(**{"test_ids": ids, "test_targets": targets, "test_logits": logits} | changes)


FILES: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "a text": lambda: b"no archive",
    "half an archive": lambda: parts()[:200],
    "a changed byte": lambda: parts()[:60] + b"\x00\xff\x00" + parts()[63:],
    "an array without end": lambda: parts(test_ids=header("(10**18,)") + b"x"),
    "an array of a negative size": lambda: parts(test_ids=header("(-1,)")),
    "a header without end": lambda: parts(test_ids=header("(" * 3000)),
    "an object": lambda: parts(test_ids=array([print], allow_pickle=True)),
    "records": lambda: parts(test_ids=array(np.zeros(20, dtype=[("a", int)]))),
    "texts as numbers": lambda: parts(test_targets=array(["x"] * 20)),
    "ids of another length": lambda: parts(test_ids=array(np.arange(3))),
    "ids in a square": lambda: parts(test_ids=array(np.zeros((20, 20), dtype=int))),
    "one number": lambda: parts(test_logits=array(0.5)),
    "too few targets": lambda: parts(test_targets=array([1])),
    "an unknown compression": lambda: parts().replace(b"\x08\x00", b"\x63\x00"),
}


def test_a_report_skips_damaged_predictions_and_names_them(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_predictions(write_run(tmp_path / "good", "csp", accuracy=1.0), RIGHT)
    for number, content in enumerate(FILES.values()):
        run = write_run(tmp_path / f"bad-{number}", f"a{number}", accuracy=1.0)
        (run / "predictions.npz").write_bytes(content())
    assert main(["report", str(tmp_path), "figures=false"]) == 0
    text = (tmp_path / "report" / "report.md").read_text()
    assert text.count("predictions.npz cannot be read") == len(FILES)
    assert "Traceback" not in "".join(capfd.readouterr())


PLANS = {
    "nothing": "",
    "a list": "[]",
    "no jobs": "{}",
    "a number of jobs": '{"jobs": 1e9, "command": [], "flags": [], "study": null}',
    "lists in lists": "[" * 100_000,
    "a job that is a path": '{"jobs": [{"name": "../x", "words": []}], "command": [], "flags": [], "study": null}',
}


def test_a_damaged_plan_is_skipped_and_named(tmp_path: Path) -> None:
    write_run(tmp_path / "good")
    for number, plan in enumerate(PLANS.values()):
        (tmp_path / f"sweep-{number}").mkdir()
        (tmp_path / f"sweep-{number}" / "sweep.json").write_text(plan)
    assert main(["report", str(tmp_path), "figures=false"]) == 0
    report = (tmp_path / "report" / "report.md").read_text()
    assert [name for number, name in enumerate(PLANS) if f"sweep-{number}/sweep.json" not in report] == []
