"""The benchmark writes all its files with the right rows; wrong options are refused in one sentence.

No test looks at how fast anything is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sliceformer_lab.__main__ import main
from sliceformer_lab.commands.benchmark.benchmark_options import BenchmarkOptions
from sliceformer_lab.commands.benchmark.comparisons import comparisons
from sliceformer_lab.permute import available_backends

QUICK = ("rounds=2", "warmup=1", "batch=1")

Bench = Callable[..., tuple[int, str, str, Path | None]]


@pytest.fixture
def bench(tmp_path: Path, capfd: pytest.CaptureFixture[str], in_this_process: None) -> Bench:
    """The command line in this process: exit code, stdout, stderr and the folder it wrote."""

    def call(*arguments: str) -> tuple[int, str, str, Path | None]:
        capfd.readouterr()
        code = main(["benchmark", *arguments, f"paths.outputs={tmp_path}"])
        return code, *capfd.readouterr(), next(tmp_path.glob("benchmark/*/*"), None)

    return call


@pytest.mark.parametrize("size", [1, 2, None])
def test_operators_are_measured_in_every_way_against_the_published_one(size: int | None) -> None:
    title = "operator complete" if size is None else f"operator G={size}"
    found = {one.workload.name: one for one in comparisons(BenchmarkOptions(suite="operators", sizes=(6,)))}
    ways = ["reference", *(way for way in ("plain", "cpu") if way in available_backends())]
    peers = ["published_csp"] if size else ["published_csp", "published_sliceformer"]
    assert found[title].against.name == peers[-1]
    assert {one.name for one in found[title].variants} == {"copy", *peers, *(f"shift_sort ({way})" for way in ways)}


def check_engines(table: pd.DataFrame) -> None:
    expected = {"mha (fused)": "sdpa", "csp (cpu)": "custom", "torch_mha": "sdpa"}
    for name, engine in zip(table["name"], table["engine"], strict=True):
        assert engine == expected.get(name, "plain"), name


def check_machine(machine: dict[str, Any], out: str) -> None:
    assert machine["threads"] == 1 and machine["processor"] and machine["cores"] > 0
    assert set(machine["versions"]) == {"torch", "numpy", "python"}
    assert machine["backends"] == list(available_backends())
    assert {"git_commit", "torch_isa", "kernel_isa", "cpu_flags", "load_before"} <= set(machine)
    assert f"torch {machine['versions']['torch']}" in out


def test_a_missing_gpu_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    code, _, err, folder = bench("device=cuda")
    assert (code, folder) == (1, None) and "torch finds no GPU on this machine" in err


def test_files_have_every_row_and_numbers_of_operations_are_those_worked_out_by_hand(bench: Bench) -> None:
    code, out, err, folder = bench("suite=layers", "sizes=[8]", "attentions=[csp,torch_mha]", *QUICK)
    assert (code, err) == (0, "") and str(folder) in out
    table, content = pd.read_csv(folder / "results.csv"), json.loads((folder / "results.json").read_text())
    check_engines(table)
    check_machine(content["machine"], out)
    assert set(table["status"]) == {"ok"} and [len(row["rounds"]) for row in content["rows"]] == [2] * len(table)
    assert (table["seconds_q1"] <= table["seconds"]).all() and (table["seconds"] <= table["seconds_q3"]).all()
    rows = table.set_index(["name", "mode"])
    two_linears = 2 * 8 * 512 * 512
    assert rows.loc[("identity", "inference"), "multiply_adds"] == two_linears
    assert rows.loc[("mha (fused)", "inference"), "multiply_adds"] == 2 * two_linears + 2 * 8 * 8 * 512
    assert rows.loc[("csp (plain)", "inference"), "comparisons"] == 8 * 512 / 2  # one for each pair
    assert rows.loc[("identity", "inference"), "parameters"] == 2 * (512 * 512 + 512)
    saved = rows.xs("training", level="mode")["saved_bytes_per_element"]
    assert saved["identity"] == 8  # input and values, 4 bytes each
    assert saved["csp (plain)"] == 8.5  # and half a byte: a bool for each pair
    assert saved["mha (fused)"] >= 20  # input, q, k, v, output
    assert all(math.isnan(value) for value in rows.xs("inference", level="mode")["saved_bytes"])
