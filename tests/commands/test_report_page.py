"""The HTML page holds what the tables hold, works in a browser by mouse and keys, and asks the network nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright
from support.run_folders import write_predictions, write_run, write_runs
from test_report import CELL, EQUAL
from test_report_figures import write_csv

from sliceformer_lab.commands.report.figures.plot_rows import PageFigure
from sliceformer_lab.commands.report.page import page
from sliceformer_lab.commands.report.report_options import ReportOptions
from sliceformer_lab.commands.report.run_details import run_details
from sliceformer_lab.commands.report.table_cells import Section, cells
from sliceformer_lab.commands.report.write_report import read_sections
from sliceformer_lab.measures.drawing import COLOURS
from sliceformer_lab.runs.collect import Collection
from sliceformer_lab.runs.folder import PREDICTIONS, SUMMARY

HOSTILE = (
    "RuntimeError: </script><script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">"
)
LAPTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


def panel(title: str) -> Callable[[Axes], None]:
    """Draws a line and a text."""

    def draw(axes: Axes) -> None:
        axes.plot([0, 1, 2], [0, 1, 4], "o-", color=COLOURS[0])
        axes.text(0, 4, title, in_layout=False)  # longer than the titles of a report, which are wrapped
        axes.set_xlabel("x")

    return draw


FIGURE = PageFigure(
    name="squares",
    title="Squares",
    caption="Two rows.",
    alt="Both rise from 0 to 4.",
    panels=[panel("from 0"), panel(f"$x^2$ {HOSTILE}")],
    legend=[Line2D([], [], color=colour, marker="o", label=row) for row, colour in (("mha", "C0"), (HOSTILE, "C1"))],
)


def read(folder: Path) -> tuple[Collection, list[Section]]:
    return read_sections(ReportOptions(folder=str(folder)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of every kind, good and bad."""
    folder = tmp_path_factory.mktemp("page") / "runs & <b>more"
    write_runs(folder, "mha", 0.9, 0.91, parameters=1_000_000)
    write_runs(folder, "csp", *(0.92, 0.93, 0.94, 0.95, 0.96, 0.97))
    write_runs(folder, "identity", 0.08, parameters=999_000)
    write_run(folder / "bad", "samsa", 0, None, error=HOSTILE)
    write_run(folder / "lost", "samsa", 1, None, status="diverged", error="DivergedError: loss is nan")
    write_run(folder / "val_only", "fnet", metrics={"val/accuracy": 0.7})
    write_run(folder / "a" / "same", "mean", 0, 0.5, command=["attention=mean", "data.root=my data"])
    write_run(folder / "b" / "same", "mean", 1, 0.6, git_commit="older", options={"encoder.depth": 2})
    cifar = {"task": "cifar10", "published": CELL, "protocol": {**EQUAL, "epochs": 3, "sha256": "cifar"}}
    write_run(folder / "cifar", "csp", 0, 0.85, **cifar)
    (write_run(folder / "half") / SUMMARY).write_text('{"task": "digits", "sta')
    return folder


@pytest.fixture(scope="module")
def file(folder: Path) -> Path:
    found, sections = read(folder)
    (folder / "report").mkdir()
    file = folder / "report" / "report.html"
    pictures = [Path("figures/squares.png"), Path("figures/squares.pdf"), Path("figures/other.png")]
    file.write_text(page(found, sections, [FIGURE], pictures), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None and os.environ.get("CI") and not os.environ.get("NO_BROWSER"):
        pytest.fail("no chromium: .ci/run installs it, or sets NO_BROWSER where it cannot")
    if program is None:
        pytest.skip("no chromium on this machine: the HTML page is not tested in a browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def shown(browser: Browser, file: Path) -> Iterator[Callable[..., Page]]:
    """Opens the page; at the end, nothing may have been logged or fetched."""
    messages: list[str] = []
    opened: list[Page] = []

    def show(of: Path = file, viewport: dict[str, int] = LAPTOP, **settings: Any) -> Page:
        tab = browser.new_page(viewport=viewport, **settings)
        tab.set_default_timeout(30_000)
        tab.on("console", lambda message: messages.append(message.text))
        tab.on("pageerror", lambda error: messages.append(str(error)))
        tab.on("request", lambda request: messages.append(request.url) if request.url != of.as_uri() else None)
        tab.goto(of.as_uri())
        opened.append(tab)
        return tab

    yield show
    for tab in opened:
        tab.close()
    assert messages == []


def column(tab: Page, place: str, number: int) -> list[str]:
    """The texts of a column, in the order on the page."""
    rows = f"{place} tbody tr:not(.details) > :nth-child({number + 1})"
    return tab.eval_on_selector_all(rows, "cells => cells.map(cell => cell.innerText.trim())")


def names(tab: Page, place: str) -> list[str]:
    return tab.eval_on_selector_all(f"{place} .name", "all => all.map(name => name.innerText)")


def content_of(file: Path) -> dict[str, Any]:
    (text,) = re.findall(r'id="content">(.*?)</script>', file.read_text(encoding="utf-8"), re.DOTALL)
    return json.loads(text)


def test_the_page_holds_the_cells_of_the_tables_and_every_run_once(folder: Path, file: Path) -> None:
    found, sections = read(folder)
    content = content_of(file)
    assert len(content["tables"]) == len(sections) == 2
    for shown_table, (table, found_lines) in zip(content["tables"], sections, strict=True):
        columns, rows = cells(table, found_lines)
        assert (shown_table["title"], shown_table["columns"], [row["cells"] for row in shown_table["rows"]]) == (
            table.title,
            columns,
            rows,
        )
    assert [run["name"] for run in content["runs"]] == [run.name for run in found.runs]
    shown = [number for table in content["tables"] for row in table["rows"] for number in row["runs"]]
    assert sorted(shown) == list(range(len(found.runs)))
    assert {row["attention"] for table in content["tables"] for row in table["rows"] if row["control"]} == {
        "identity",
        "mean",
    }
    commands = {run["name"]: run["command"] for run in content["runs"]}
    assert commands["a/same"] == "python -m sliceformer_lab attention=mean 'data.root=my data'"
    (note,) = content["leftovers"]
    assert note.startswith("half cannot be read") and "summary.json" in note
    assert content["figures"][0]["pictures"] == ["figures/squares.png", "figures/squares.pdf"]


def test_compressed_options_restore_every_run(folder: Path, file: Path) -> None:
    found, _ = read(folder)
    options = content_of(file)["options"]
    depth = options["names"].index("encoder.depth")
    for run, others in zip(found.runs, options["others"], strict=True):
        facts = {
            name: options["values"][others.get(str(i), options["common"][i])] for i, name in enumerate(options["names"])
        }
        assert all(
            facts[name] == (value if isinstance(value, str) else json.dumps(value))
            for name, value in run.options.items()
        )
        assert (str(depth) in others) == (run.options["encoder.depth"] == 2)
        assert facts["git_commit"] == run.summary.git_commit


def test_nothing_that_a_run_wrote_can_end_the_script_or_name_the_network(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert HOSTILE not in text and "<b>more" not in text
    assert content_of(file)["runs"][[run["name"] for run in content_of(file)["runs"]].index("bad")]["error"] == HOSTILE
    assert text.count("<script") == text.count("</script>") == 2
    assert "default-src 'none'" in text
    assert not re.search(r"<(link|script|img|iframe)[^>]*(src|href)=.?https?:", text)


def test_the_main_columns_fit_a_laptop_and_are_sorted_by_their_numbers_with_keys(shown: Callable[..., Page]) -> None:
    tab = shown()
    table = tab.locator("#results .sheet").filter(has_text="digits: digits")
    place = "#results .sheet:nth-of-type(2)"
    heads = table.locator("thead th")
    overflow = "all => all.map(place => place.scrollWidth - place.clientWidth)"
    assert tab.eval_on_selector_all("#results .scroll", overflow) == [0, 0]
    assert not heads.filter(has_text="multiply-adds").is_visible()
    tab.get_by_label("all columns").check()
    assert heads.filter(has_text="multiply-adds").is_visible()
    assert heads.first.get_attribute("aria-sort") == "none"
    metric = heads.filter(has_text="test/accuracy, %")
    number = [*map(str.strip, heads.all_inner_texts())].index("test/accuracy, %")
    for key, direction in (("Enter", "descending"), ("Space", "ascending")):  # best first
        metric.get_by_role("button").focus()
        tab.keyboard.press(key)
        assert metric.get_attribute("aria-sort") == direction
        texts = column(tab, place, number)
        values = [float(text.split()[0]) for text in texts if text]  # empty cells come last
        assert len(values) == 5 and texts[len(values) :] == ["", ""]
        assert values == sorted(values, reverse=direction == "descending")
        assert 8.0 in values, "which sorts after 95 as text"
    heads.first.get_by_role("button").click()
    assert metric.get_attribute("aria-sort") == "none" and heads.first.get_attribute("aria-sort") == "ascending"
    assert names(tab, place) == sorted(names(tab, place))


def test_the_filter_goes_over_all_tables_and_counts_what_is_left(shown: Callable[..., Page]) -> None:
    tab = shown()
    left = tab.locator("#remaining")
    assert left.inner_text() == "8 of 8 rows, 15 of 15 runs"
    tab.get_by_label("Filter").first.fill("CSP  nowhere")
    expect(tab.locator("#remaining")).to_have_text(re.compile("^0 of"))
    tab.get_by_label("Filter").first.fill("CSP")
    expect(tab.locator("#remaining")).to_have_text(re.compile("^2 of"))
    assert left.inner_text() == "2 of 8 rows, 7 of 15 runs" and set(names(tab, "#results")) == {"csp"}
    tab.get_by_role("button", name="Clear").click()
    tab.get_by_label("Status").select_option("failed")
    expect(tab.locator("#remaining")).to_have_text(re.compile("^1 of"))
    assert names(tab, "#results") == ["samsa"] and names(tab, "#runs") == ["bad"]
    tab.get_by_label("Attention").select_option("csp")
    expect(tab.locator("#remaining")).to_have_text(re.compile("^0 of"))
    assert tab.get_by_text("Nothing matches the filter.").count() == 3
    tab.get_by_role("button", name="Clear").click()
    expect(tab.locator("#remaining")).to_have_text(re.compile("^8 of"))


def test_failures_and_why_a_number_is_not_comparable_are_reached_by_keys(shown: Callable[..., Page]) -> None:
    tab = shown()
    assert tab.locator("#counts .problem").all_inner_texts() == ["1 diverged", "1 failed", "1 unreadable"]
    assert "half cannot be read" in tab.locator(".leftovers").inner_text()
    assert tab.locator("#results tr", has_text="identity").locator(".tag").inner_text() == "control"
    mark = tab.get_by_role("button", name="not comparable: 3 epochs, the paper 100")
    mark.focus()
    tab.keyboard.press("Enter")
    assert mark.get_attribute("aria-expanded") == "true"
    details = tab.locator("#results .details")
    assert "published as csp table3 (test/accuracy), not comparable: 3 epochs, the paper 100" in details.inner_text()
    details.get_by_role("link", name="seed 0").click()
    assert tab.evaluate("document.activeElement.innerText") == "cifar"
    assert "python -m sliceformer_lab" in tab.locator("#runs .details").inner_text()
    mark.focus()
    tab.keyboard.press("Enter")
    assert details.count() == 0


def test_hostile_text_is_text(shown: Callable[..., Page]) -> None:
    tab = shown()
    tab.locator("#runs").get_by_role("button", name="bad", exact=True).click()
    assert HOSTILE in tab.locator("#runs .details").inner_text()
    tab.locator("#results").get_by_role("button", name="samsa", exact=True).click()
    assert HOSTILE in tab.locator("#results .details").inner_text()
    assert tab.title() == tab.locator("h1").inner_text() == "Runs below runs & <b>more"
    assert tab.locator("img").count() == 0


def test_two_runs_are_compared_option_by_option(shown: Callable[..., Page]) -> None:
    tab = shown()
    first, second = tab.get_by_label("Run A"), tab.get_by_label("Run B")
    first.fill("a/same")
    second.fill("b/same")
    expect(tab.locator("#pair-result")).to_have_text(re.compile("^3 of"))
    rows = {cell: (a, b) for cell, a, b in zip(*(column(tab, "#differences", i) for i in range(3)), strict=True)}
    assert rows["encoder.depth"] == ("4", "2") and rows["seed"] == ("0", "1")
    assert rows.keys() == {"encoder.depth", "seed", "git_commit"}
    tab.get_by_role("button", name="Swap").click()
    assert first.input_value() == "b/same" and "2" in column(tab, "#differences", 1)
    tab.get_by_label("show equal options").check()
    expect(tab.locator("#differences tbody tr").nth(40)).to_be_visible()
    first.fill("same")
    expect(tab.locator("#pair-result")).to_contain_text("2 runs match")
    first.fill("nowhere")
    expect(tab.locator("#pair-result")).to_contain_text("no run has this name")
    first.fill("VAL_o")
    expect(tab.locator("#pair-result")).to_contain_text("differ")


@pytest.fixture
def compared(tmp_path: Path) -> Path:
    """The page of two runs with curves, predictions, texts and pictures, and of one run of another task."""
    targets = np.arange(40) % 2
    for attention, wrong in (("csp", [3, 5]), ("mha", [5, 7, 9])):
        run = write_run(tmp_path / attention, attention, 0, 1 - len(wrong) / 40)
        correct = ~np.isin(np.arange(40), wrong)
        arrays = {
            "test_ids": np.arange(40),
            "test_targets": targets,
            "test_places": [f"sms.csv, line {i + 2}" for i in range(40)],
        }
        logits = np.eye(2, dtype=np.float16)[np.where(correct, targets, 1 - targets)]
        np.savez(run / PREDICTIONS, test_logits=logits, class_names=["ham", "spam"], **arrays)
        rows = [f"test,text <b>{i}</b>" for i in range(40)]
        (run / "predictions.csv").write_text("\n".join(["split,text", "val,other", *rows]))
        write_csv(run, [0.5, 0.7, 0.9])
        Image.new("RGB", (8, 8), "red").save(run / "confusion.png")
        Image.new("RGB", (8, 8), "red").save(run / "curves.png")
    write_run(tmp_path / "esol", "csp", 0, task="esol")
    found, sections = read(tmp_path)
    file = tmp_path / "report.html"
    file.write_text(page(found, sections, []), encoding="utf-8")
    return file


def test_two_runs_are_compared_by_curves_and_by_the_examples_that_they_answer_differently(
    compared: Path, shown: Callable[..., Page]
) -> None:
    tab = shown(compared)
    first = {tab.get_by_label(f"Run {letter}").input_value() for letter in "AB"}
    assert first == {"csp", "mha"}, "it opens on two finished runs of one task"
    tab.get_by_label("Run A").fill("csp")
    tab.get_by_label("Run B").fill("mha")
    more = tab.locator("#pair-more")
    more.get_by_text("Of 40 test examples, both are right on 36, only A on 2, only B on 1, neither on 1.").wait_for()
    texts = [row.locator("> *").all_text_contents() for row in more.locator("tbody tr").all()]
    assert sorted(texts) == [
        ["sms.csv, line 11", "text <b>9</b>", "spam", "spam", "ham"],
        ["sms.csv, line 5", "text <b>3</b>", "spam", "ham", "spam"],
        ["sms.csv, line 9", "text <b>7</b>", "spam", "spam", "ham"],
    ]
    titles = ["Validation accuracy", "Validation loss", "Training loss"]
    assert more.locator("svg .title").all_text_contents() == titles
    assert more.locator(".key li").all_inner_texts() == ["A", "B"]
    curve = more.locator("svg").first
    assert curve.locator("circle").count() == 6
    assert curve.locator("circle title").first.inner_html() == "A, epoch 1: 0.5"
    numbers = [float(text) for text in curve.locator("text:not(.title)").all_text_contents() if text != "epoch"]
    assert numbers[:3] == [1, 2, 3] and numbers[3:] == sorted(numbers[3:]) and 0.5 <= numbers[3] < numbers[-1] <= 0.9
    tab.get_by_label("Run B").fill("esol")
    more.get_by_text("Not shown: a run has no predictions").wait_for()


def test_the_pictures_of_a_run_are_folded_in_its_details_and_others_are_links(
    compared: Path, shown: Callable[..., Page]
) -> None:
    tab = shown(compared)
    tab.locator("#results").get_by_role("button", name="mha", exact=True).click()
    pictures = tab.locator("#results .details .pictures")
    assert not pictures.locator("img").is_visible()
    pictures.locator("summary", has_text="confusion").click()
    expect(pictures.locator("img").first).to_have_js_property("naturalWidth", 8)
    assert pictures.get_by_role("link", name="curves").get_attribute("href") == "../mha/curves.png"


def test_curves_predictions_and_pictures_are_bounded_in_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for run in write_runs(tmp_path, "csp", 1.0, 1.0, 1.0):
        write_predictions(run, np.ones(5000, dtype=bool))
        write_csv(run, [0.5] * 3000)
        (run / "confusion.png").write_bytes(b"\x89PNG" + bytes(1000))
    write_runs(tmp_path / "other", "mha", 0.5)
    found, sections = read(tmp_path)
    whole, (test,) = run_details(found.runs, sections)
    assert [len(details.get("answers", [])) for details in whole] == [5000] * 3 + [0] and test["total"] == 5000
    assert max(len(values) for details in whole for _, values in details["curves"].values()) == 100
    monkeypatch.setattr("sliceformer_lab.commands.report.run_details.MAX_PREDICTIONS", 4000)
    monkeypatch.setattr("sliceformer_lab.commands.report.run_details.PICTURE_BYTES", 900)
    small, (test,) = run_details(found.runs, sections)
    assert [len(details.get("answers", [])) for details in small] == [1000] * 3 + [0]
    assert (test["total"], len(test["ids"]), test["ids"][-1]) == (5000, 1000, 4999)
    assert [details["pictures"] for details in small] == [{"confusion.png": None}] * 3 + [{}]


def test_what_runs_wrote_in_figures_is_text(shown: Callable[..., Page]) -> None:
    tab = shown()
    figure = tab.locator("#figure-squares")
    assert figure.locator(".plot").get_attribute("aria-label") == FIGURE.alt
    assert [title.strip() for title in figure.locator(".plot svg text").all_text_contents() if "x^2" in title] == [
        f"$x^2$ {HOSTILE}"
    ]
    assert figure.locator(".key li").all_inner_texts() == ["mha", HOSTILE] and tab.title() != "owned"
    assert figure.locator("figcaption").inner_text().startswith(FIGURE.caption)
    assert [link.get_attribute("href") for link in figure.locator("a").all()] == [
        "figures/squares.png",
        "figures/squares.pdf",
    ]


UNNAMED = """() => [...document.querySelectorAll('button, input, select, a, [role=region], nav')].filter((element) =>
  !(element.getAttribute('aria-label') || element.labels?.[0]?.innerText.trim() || element.innerText?.trim()))
  .map((element) => element.outerHTML)"""


@pytest.mark.parametrize("viewport", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_it_can_be_read_on_any_screen(shown: Callable[..., Page], viewport: dict[str, int]) -> None:
    tab = shown(viewport=viewport)
    for opened in ("#legend summary", "#results .name >> nth=0", "#runs .name >> nth=0"):
        tab.locator(opened).click()
    assert tab.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    assert tab.evaluate(UNNAMED) == []
    levels = tab.eval_on_selector_all("h1, h2, h3, h4", "all => all.map(heading => Number(heading.tagName[1]))")
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert tab.locator("html").get_attribute("lang") == "en" and tab.get_by_role("main").count() == 1
