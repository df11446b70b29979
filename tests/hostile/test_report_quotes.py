"""Reports of runs from strangers: names, errors and options are text in every format, never markup or formulas."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from support.run_folders import write_run, write_runs

from sliceformer_lab.__main__ import main

TEXTS = {
    "a formula": '=HYPERLINK("http://evil","click")',
    "a formula with a sign": "+cmd|' /C calc'!A1",
    "a formula with an at": "@SUM(1+1)*cmd|' /C calc'!A0",
    "a formula after a tab": "\t=1+1",
    "a formula after a break": "\n=1+1",
    "a negative formula": "-2+3+cmd",
    "a script": "<script>alert(1)</script>",
    "a picture": '<img src=x onerror="alert(1)">',
    "a link": "[click](javascript:alert(1))",
    "a picture by Markdown": "![x](http://evil/x.png)",
    "a link by name": "[click][evil]",
    "code": "`a` ``b``",
    "more cells": "csp | 99.9 | 100 |",
    "an escaped cell": "csp \\| 99.9",
    "a heading": "\n# Results\n",
    "a table of its own": "x\n\n| a | b |\n| --- | --- |\n| 1 | 2 |",
    "a file for LaTeX": r"\input{/etc/passwd}",
    "a command for LaTeX": r"\write18{touch it-ran}",
    "a comment for LaTeX": "100% \\\\ \\end{tabular} ^^5cinput",
    "mathematics": "$x_1^2$ & # ~ {}",
    "control characters": "a\x1b[31mb\x07\x00c\u202ed",
}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a report whose runs carry the texts as attention, option, error and folder."""
    folder = tmp_path_factory.mktemp("runs")
    write_runs(folder / "plain", "csp", 0.8, 0.9)
    for number, text in enumerate(TEXTS.values()):
        write_run(folder / f"{number}", text, accuracy=0.5, options={"attention.order": text})
        write_run(folder / f"failed-{number}", "mha", seed=number, accuracy=None, error=text, status="failed")
    (folder / "`<b>x").mkdir()
    (folder / "`<b>x" / "summary.json").write_text("{}")
    assert main(["report", str(folder), "figures=false"]) == 0
    return folder / "report"


def test_no_cell_of_the_csv_is_a_formula(report: Path) -> None:
    rows = list(csv.reader((report / "report.csv").open(newline="")))
    cells = [cell for row in rows for cell in row if cell[:1] in ("=", "+", "-", "@", "\t", "\r", "\n")]
    assert [cell for cell in cells if not re.fullmatch(r"-?[0-9.]+(e-?\d+)?", cell)] == []
    assert len({len(row) for row in rows}) == 1 and len(rows) > len(TEXTS)


def test_the_markdown_holds_no_html_no_links_and_whole_tables(report: Path) -> None:
    text = (report / "report.md").read_text()
    assert not re.search(r"(?<!\\)<|\]\(|\]\[", text)
    widths: list[int] = []
    for line in text.splitlines():
        if line.startswith("|"):
            widths.append(len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)))
        elif widths:
            assert len(set(widths)) == 1, line
            widths = []
    assert [line for line in text.splitlines() if line.startswith("# ")] == [text.splitlines()[0]]


def test_the_latex_holds_no_command_of_a_run(report: Path) -> None:
    text = (report / "report.tex").read_text()
    commands = set(re.findall(r"\\([a-zA-Z]+)", text))
    assert commands <= {
        *("usepackage", "begin", "end", "caption", "toprule", "midrule", "bottomrule"),
        *("textbackslash", "textasciitilde", "textasciicircum", "neq", "times", "pm"),
    }
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}")
