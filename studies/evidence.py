"""Does every task learn? The tables of studies/evidence.md, from the runs in results/evidence.jsonl (`make docs`)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from marked_sections import with_section
from results import RESULTS, read

from sliceformer_lab.config.compose import option_names
from sliceformer_lab.runs.plain_text import markdown_table

STUDY = "evidence"
PAGE = RESULTS.parent / "evidence.md"
CONTROL = "identity"  # the second run of a setting mixes no tokens
REASONS = {  # task -> why it has no run
    "lra_pathfinder": "No attention has learned it here, a CNN has: [tasks.md](../docs/tasks.md)",
    "lra_pathx": "Not trained: at the 55,000 tokens a second of these runs 10 epochs of 20,000 pictures take 17 h",
    "mask_folder": "Six attentions on CamVid: [dense.md](dense.md)",
    "text_lm": "Softmax, `csp_causal` and n-grams on reviews of IMDB: [causal.md](causal.md)",
    "torchvision": "Not trained. `mnist` reads [Fashion-MNIST](fashion_mnist/README.md)'s files, with nine rows",
}
HEADER = ("run", "data", "score on the test set", "constant", "without a network", "no mixing", "epochs, seconds")
Result = Mapping[str, Any]


def full_table(results: Sequence[Result]) -> str:
    """The Markdown table of studies/evidence.md: a row for each run, and the reasons of tasks without one."""
    controls = {result["setting"]: result for result in results if result["attention"] == CONTROL}
    rows = []
    for result in trained(results):
        control = controls.get(result["setting"])
        row = [
            f"`{result['setting']}`",
            f"{result['data']}; {result['protocol']['num_train']:,} for training",
            score_with_interval(result),
            number(result["trivial"]["score"]),
            f"{number(result['baseline']['score'])}, {result['baseline']['name']}" if result["baseline"] else "–",
            number(control["score"]) if control else "–",
            f"{result['epochs']}, {result['seconds']}",
        ]
        rows.append(row)
    rows += [[f"`{task}`", REASONS[task], *["–"] * 5] for task in untrained(results)]
    return markdown_table(HEADER, *rows)


def trained(results: Sequence[Result]) -> list[Result]:
    """The runs without the controls."""
    return [result for result in results if result["attention"] != CONTROL]


def tasks() -> list[str]:
    """The tasks with data to learn from. The probes only tell operators apart; docs/tasks.md has them."""
    return [task for task in option_names("task") if not task.startswith("probe_")]


def untrained(results: Sequence[Result]) -> list[str]:
    """The tasks without a run that learned."""
    learned = {result["task"] for result in results if result["learned"]}
    return [task for task in tasks() if task not in learned]


def score_with_interval(result: Result) -> str:
    """A score with its metric and half the width of its interval."""
    split, _, metric = result["metric"].partition("/")
    half = (result["interval"][1] - result["interval"][0]) / 2
    where = "" if split == "test" else " (validation)"
    return f"{metric.replace('_', ' ')} {number(result['score'])} ± {half:.2g}{where}"


def number(value: float) -> str:
    """A score with three digits."""
    return f"{value:.3f}"


def ahead(results: Sequence[Result]) -> str:
    """How many runs are below the model without a network, and which."""
    both = [run for run in trained(results) if run["baseline"]]
    signs = {run["setting"]: -1 if run["metric"].endswith("mae") else 1 for run in both}
    below = [run for run in both if signs[run["setting"]] * (run["baseline"]["score"] - run["score"]) > 0]
    names = ", ".join(f"`{run['setting']}`" for run in below)
    return f"**{len(below)} of {len(both)} runs are below the model without a network**: {names}."


def page_text(results: Sequence[Result]) -> str:
    """The table, how often the simple model is ahead, and the commands of studies/evidence.md."""
    commands = [f"python -m sliceformer_lab {shlex.join(run['command'])}" for run in trained(results)]
    return "\n".join([full_table(results), "", ahead(results), "", "```bash", *commands, "```"])


def page() -> str:
    """The page with all this between its markers."""
    return with_section(PAGE.read_text(encoding="utf-8"), STUDY, page_text(read(STUDY)))
