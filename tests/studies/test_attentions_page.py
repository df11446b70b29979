"""docs/attentions.md agrees with the classes, the refusals and the committed measurements."""

from __future__ import annotations

import re

import all_attentions
import attentions
import growth
import pytest
from PIL import Image

from sliceformer_lab.config.compose import option_names

UNTRAINED = {"csp_causal", "mega"}  # bidirectional tasks gain nothing from the first; the second needs its own block


def row(table: str, name: str) -> list[str]:
    """The cells of the row of `name`."""
    return next(line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith(f"| `{name}`"))


def committed_matrix() -> str:
    """The matrix of attentions and tasks as the page has it."""
    page = attentions.PAGE.read_text(encoding="utf-8")
    return "## What runs where" + page.partition("## What runs where")[2].partition("\n\n## Trained")[0]


def test_page_but_its_matrix_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attentions, "matrix", committed_matrix)
    assert attentions.PAGE.read_text(encoding="utf-8") == attentions.page(), "`make docs` writes it anew"


@pytest.mark.slow  # it builds every attention in every task: minutes of a slow processor
@pytest.mark.timeout(1500)
def test_matrix_is_current() -> None:
    assert committed_matrix() == attentions.matrix(), "`make docs` writes it anew"


def test_every_measured_attention_has_a_row_and_a_new_one_waits_for_its_measurement() -> None:
    assert {*attentions.presets(), *attentions.ALSO_MEASURED} == set(growth.read()["attentions"])


def test_matrix_has_every_task_once_and_refuses_what_a_run_refuses() -> None:
    matrix = committed_matrix()
    sentence, _, table = matrix.partition("\n\nThe table shows which attentions run with the other tasks and blocks.")
    head = next(line for line in table.splitlines() if line.startswith("| attention"))
    columns = head.strip("| ").split(" | ")
    for task in option_names("task"):
        assert sum(f"`task={task}`" in names for names in (sentence, *columns)) == 1
    assert "`block=gps`" in sentence  # on a task with graphs
    assert re.findall(r"^\| `(\w+)`", matrix, re.MULTILINE) == list(attentions.presets())
    rope = next(i for i, names in enumerate(columns) if "rope" in names)
    assert (row(matrix, "mha")[rope], row(matrix, "csp")[rope]) == ("yes", "–")
    assert "- `encoder.position=rope`: encoder.position=rope rotates queries and keys." in matrix
    graphs = "`block=gatedgcn`, `block=gcn`, `block=gine`"
    assert f"- {graphs}: block: global_attention=false has no place for attention; choose attention=identity." in matrix


def test_picture_is_of_the_committed_measurements() -> None:
    with Image.open(growth.PICTURE) as picture:
        assert picture.info["Measurements"] == growth.digest()


def test_peak_memory_counts_what_is_kept_for_the_backward_pass() -> None:
    """mean keeps nothing of N x N; sinkformer keeps its N x N weights: 4 heads x 256 x 256 x 4 bytes each."""
    peaks = {name: growth._peak_bytes(growth._layer(name, 256), 256) for name in ("mean", "sinkformer")}
    assert peaks["mean"] < 4 * 256 * 256 * 4 < 2 * peaks["sinkformer"]
    assert peaks["sinkformer"] < 20 * 4 * 256 * 256 * 4


def test_every_attention_but_the_controls_and_our_own_links_a_paper() -> None:
    without = {name for name in attentions.presets() if name not in attentions.ARXIV}
    assert without == {name for name in attentions.presets() if attentions.layer(name).source in ("control", "ours")}


def test_every_attention_has_a_row_and_three_seeds_on_both_tasks() -> None:
    rows = {*all_attentions.CONTROLS, *all_attentions.OTHERS}
    assert set(attentions.presets()) - UNTRAINED <= rows
    seeds = {(run["task"], run["attention"], run["seed"]) for run in all_attentions.read()["runs"]}
    assert seeds == {(task, row, seed) for task in all_attentions.WORDS for row in rows for seed in (0, 1, 2)}
