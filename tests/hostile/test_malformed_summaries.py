"""Summaries with facts of a wrong type: each is one line of the report, which shows all other runs."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from support.run_folders import read_summary, write_run, write_runs

from sliceformer_lab.commands.report.report_options import ReportOptions
from sliceformer_lab.commands.report.write_report import write_report
from sliceformer_lab.runs.collect import collect
from sliceformer_lab.runs.files import write_json, write_text

FAULTS: dict[str, dict[str, Any]] = {
    "seed is [1]": {"seed": [1]},
    "split_seed is 'x'": {"split_seed": "x"},
    "task is ['digits']": {"task": ["digits"]},
    "attention is None": {"attention": None},
    "status is 3": {"status": 3},
    "options is []": {"options": []},
    "options.encoder is 4": {"options": {"encoder": 4}},
    "protocol.num_test is [299]": {"protocol": {"num_test": [299]}},
    "metrics is [0.9]": {"metrics": [0.9]},
    "metrics.test/accuracy is '0.9'": {"metrics": {"test/accuracy": "0.9"}},
    "best is 3": {"best": 3},
    "chance is 'high'": {"chance": "high"},
    "parameters is {}": {"parameters": {}},
    "cost_per_sample is 'none'": {"cost_per_sample": "none"},
    "published is 'table 1'": {"published": "table 1"},
    "warnings is 'w'": {"warnings": "w"},
    "command is {'a': 1}": {"command": {"a": 1}},
    "machine is []": {"machine": []},
    "references is {}": {"references": {}},
    "started is 2026": {"started": 2026},
}
NAMELESS = "a summary without an attention"
BROKEN = {
    NAMELESS: '{"task": "digits", "status": "ok"}',
    "cut off": '{"task": "digits"',
    "deep": "[" * 100_000,
    "a list": "[1]",
    "a number": "3",
    "empty": "",
}


@pytest.mark.filterwarnings("ignore")
def test_each_malformed_summary_is_a_line_of_the_report(tmp_path: Path) -> None:
    folder = tmp_path / "outputs"
    write_runs(folder, "csp", 0.9, 0.8)
    whole = json.loads((write_run(folder / "whole", "mha") / "summary.json").read_text())
    for number, (fault, change) in enumerate(FAULTS.items()):
        write_run(folder / f"bad-{number}", "mha")
        write_text(folder / f"bad-{number}" / "summary.json", json.dumps(deepcopy(whole) | change))
        assert collect(folder).unreadable[f"bad-{number}"].endswith(f"is not the summary of a run: {fault}")
    for name, text in BROKEN.items():
        write_run(folder / name, "mha")
        write_text(folder / name / "summary.json", text)
    found = collect(folder)
    assert found.unreadable[NAMELESS].endswith("is not the summary of a run: it lacks attention")
    assert len(found.runs) == 3 and len(found.unreadable) == len(FAULTS) + len(BROKEN)
    write_report(ReportOptions(folder=str(folder), figures=False), tmp_path / "report")
    for name in ("report.md", "report.html"):
        text = (tmp_path / "report" / name).read_text()
        assert all(bad in text for bad in found.unreadable)


def test_values_that_are_not_defined_leave_a_summary_readable(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", "mha")
    undefined = {"metrics": {"test/auc": float("nan")}, "accuracy_at_length": {"64": float("nan")}, "chance": None}
    write_json(folder / "summary.json", read_summary(folder) | undefined)
    (run,) = collect(tmp_path).runs
    assert run.summary.metrics == {"test/auc": None} and run.summary.accuracy_at_length == {"64": None}
