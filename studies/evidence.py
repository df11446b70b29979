"""Does every task learn? One small run each, next to a constant, a model without a network, and no mixing.

usage: python studies/evidence.py                     write the tables of studies/evidence.md (`make docs`)
       python studies/evidence.py run SOURCE [NAME...] train what is not finished, then write results/evidence.jsonl

SOURCE is the folder that `stand_ins.py` describes; it also holds aclImdb, own/ag.csv, own/esol.csv and
TUDataset/Mutagenicity, as torch-geometric reads it. The runs are
those of `evidence_runs.py`. They use `python -m sliceformer_lab` with one thread and write to outputs/studies/evidence.
A finished run is not trained again; delete its folder to do so.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from evidence_baselines import OWN_BASELINES
from evidence_runs import REASONS, ROWS, Row, named
from marked_sections import with_section
from results import RESULTS, read
from scipy import stats
from stand_ins import STAND_INS

from sliceformer_lab.config.checked import Paths
from sliceformer_lab.config.compose import option_names
from sliceformer_lab.errors import DataError
from sliceformer_lab.runs.files import write_text
from sliceformer_lab.runs.folder import is_finished
from sliceformer_lab.training.results.references import references
from sliceformer_lab.training.saved.saved_run import Run, load_run

STUDY = "evidence"
OUTPUT = Path("outputs", "studies", STUDY)
PAGE = RESULTS.parent / "evidence.md"
FIXED = ("callbacks=minimal", "pictures=false", "reference=null")  # save time and change no score
RESAMPLES = 300
UNLIMITED = 1e5  # seconds of a run whose tenth is enough for any simple model
Result = Mapping[str, Any]


def run_all(source: Path, names: Sequence[str]) -> None:
    """Make the data, train and score the rows with these names (all without names), and record each result."""
    for name, row in named(names).items():
        task = name.partition("-")[0]
        if task in STAND_INS and not (OUTPUT / "made" / task).exists():
            make_stand_in(source, task)
        for attention in (row.attention, *(["identity"] if row.control else [])):
            folder = OUTPUT / "runs" / f"{name}-{attention}"
            words = row.command(attention, source=str(source), made=str(OUTPUT / "made"))
            if not _finished(folder):
                train(words, folder)
            run = load_run(folder)
            if other := sorted(set(words) - set(run.summary.get("command", ()))):
                raise DataError(f"{folder}: a run without {' '.join(other)}; remove it, so that it is trained again")
            record(scored(name, row, attention, run))


def make_stand_in(source: Path, name: str) -> None:
    """Write a stand-in; an unfinished one does not keep its name."""
    unfinished = OUTPUT / "made" / f"{name}.{os.getpid()}"
    STAND_INS[name](source, unfinished)
    unfinished.rename(OUTPUT / "made" / name)


def train(words: Sequence[str], folder: Path) -> None:
    """One run on one thread. Raises subprocess.CalledProcessError if it fails."""
    places = (f"paths.data={OUTPUT / 'cache'}", f"hydra.run.dir={folder}")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-m", "sliceformer_lab", *words, *FIXED, *places], check=True, env=environment)


def scored(name: str, row: Row, attention: str, run: Run) -> Result:
    """The result of a finished run, with its interval and the scores of both references."""
    summary, task = run.summary, run.model
    split = "test" if "test_targets" in run.predictions else "val"
    monitor = task.monitor
    metric = f"{split}/{monitor}"
    low, high = interval(run, split)
    constant, simple = (OWN_BASELINES.get(summary["task"]) or common_references)(run, split)
    sign = 1 if task.monitor_mode == "max" else -1
    return {
        **{
            key: summary[key]
            for key in ("task", "attention", "seed", "protocol", "metrics", "parameters", "git_commit")
        },
        **{"setting": name, "data": row.data, "command": row.command(attention), "metric": metric},
        **{
            "epochs": run.config["optim"]["epochs"] or summary["best"]["epoch"],
            "seconds": round(summary["wall_seconds"]),
        },
        **{
            "score": summary["metrics"][metric],
            "interval": [low, high],
            "examples": len(run.predictions[f"{split}_ids"]),
        },
        **{"trivial": constant, "baseline": simple, "versions": summary["versions"]},
        "learned": sign * ((low if sign == 1 else high) - constant["score"]) > 0,
    }


def interval(run: Run, split: str) -> tuple[float, float]:
    """The 95 % interval of the monitored metric over random draws of the scored examples, for this one model.

    Wilson's for accuracy, which keeps a width at 1; of other metrics the quantiles of RESAMPLES resampled sets.
    """
    outputs = torch.from_numpy(run.predictions[f"{split}_logits"])
    targets = torch.from_numpy(run.predictions[f"{split}_targets"])
    outputs = outputs.float() if outputs.is_floating_point() else outputs.long()
    if run.model.monitor == "accuracy":
        right = int((outputs.argmax(dim=1) == targets).sum())
        found = stats.binomtest(right, len(targets)).proportion_ci(method="wilson")
        return float(found.low), float(found.high)
    metric = run.model.build_metrics()[run.model.monitor]
    random = np.random.default_rng(0)
    scores = []
    for _ in range(RESAMPLES):
        chosen = torch.from_numpy(random.integers(len(targets), size=len(targets)))
        metric.reset()
        metric.update(outputs[chosen], targets[chosen])
        scores.append(float(metric.compute()))
    low, high = np.quantile(scores, [0.025, 0.975])
    return float(low), float(high)


def common_references(run: Run, split: str) -> tuple[Result, Result | None]:
    """Name and score of a constant, and of the strongest simple model of the package, without a time limit."""
    predictions = {
        stage: {part: torch.from_numpy(run.predictions[f"{stage}_{part}"]) for part in ("ids", "targets")}
        for stage in ("val", "test")
        if f"{stage}_ids" in run.predictions
    }
    plan = run.plan.model_copy(update={"paths": Paths(data=str(OUTPUT / "cache"), outputs=run.plan.paths.outputs)})
    rows = references(plan, run.data, run.model, predictions, UNLIMITED)
    found = [
        {"name": row["name"], "score": row["metrics"][f"{split}/{run.model.monitor}"]}
        for row in rows
        if "metrics" in row
    ]
    return found[0], found[-1] if len(found) > 1 else None


def record(result: Result) -> None:
    """Put a result into results/evidence.jsonl in the place of its predecessor."""
    known = {(found["setting"], found["attention"]): found for found in read(STUDY)}
    known[result["setting"], result["attention"]] = result
    names = list(ROWS)
    order = sorted(known, key=lambda key: (names.index(key[0]), key[1] == "identity"))
    write_text(RESULTS / f"{STUDY}.jsonl", "".join(json.dumps(known[key]) + "\n" for key in order))


def full_table(results: Sequence[Result]) -> str:
    """The Markdown table of studies/evidence.md: a row for each run, and the reasons of tasks without one."""
    lines = [
        "| run | data | score on the test set | constant | without a network | no mixing | epochs, seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in (found for found in results if found["attention"] == ROWS[found["setting"]].attention):
        control = [r for r in results if r["setting"] == result["setting"] and r["attention"] == "identity"]
        cells = (
            f"`{result['setting']}`",
            f"{result['data']}; {result['protocol']['num_train']:,} for training",
            shown(result),
            number(result["trivial"]["score"]),
            f"{number(result['baseline']['score'])}, {result['baseline']['name']}" if result["baseline"] else "–",
            number(control[0]["score"]) if control else "–",
            f"{result['epochs']}, {result['seconds']}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    rows = [f"| `{task}` | {REASONS[task]} | – | – | – | – | – |" for task in untrained(results)]
    return "\n".join(lines + rows)


def tasks() -> list[str]:
    """The tasks with data to learn from. The probes only tell operators apart; docs/tasks.md has them."""
    return [task for task in option_names("task") if not task.startswith("probe_")]


def untrained(results: Sequence[Result]) -> list[str]:
    """The tasks without a run that learned."""
    learned = {result["task"] for result in results if result["learned"]}
    return [task for task in tasks() if task not in learned]


def commands(results: Sequence[Result]) -> str:
    """The command of every run in full."""
    names = dict.fromkeys(result["setting"] for result in results)
    lines = [f"python -m sliceformer_lab {shlex.join(ROWS[name].command())}" for name in names]
    return "\n".join(["```bash", *lines, "```"])


def shown(result: Result) -> str:
    """A score with its metric and half the width of its interval."""
    split, _, metric = result["metric"].partition("/")
    half = (result["interval"][1] - result["interval"][0]) / 2
    where = "" if split == "test" else " (validation)"
    return f"{metric.replace('_', ' ')} {number(result['score'])} ± {half:.2g}{where}"


def number(value: float) -> str:
    """A score with three digits."""
    return f"{value:.3f}"


def page_text(results: Sequence[Result]) -> str:
    """The table, how often the simple model is ahead, and the commands of studies/evidence.md."""
    return f"{full_table(results)}\n\n{ahead(results)}\n\n{commands(results)}"


def ahead(results: Sequence[Result]) -> str:
    """How many runs are below the model without a network, and which."""
    both = [run for run in results if run["attention"] == ROWS[run["setting"]].attention and run["baseline"]]
    signs = {run["setting"]: -1 if run["metric"].endswith("mae") else 1 for run in both}
    below = [run for run in both if signs[run["setting"]] * (run["baseline"]["score"] - run["score"]) > 0]
    names = ", ".join(f"`{run['setting']}`" for run in below)
    return f"**{len(below)} of {len(both)} runs are below the model without a network**: {names}."


def write_tables() -> None:
    """Replace what is between the markers of the page."""
    write_text(PAGE, with_section(PAGE.read_text(encoding="utf-8"), "evidence", page_text(read(STUDY))))


def _finished(folder: Path) -> bool:
    return folder.is_dir() and is_finished(folder)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run", source, *names]:
            run_all(Path(source), names)
        case []:
            write_tables()
        case _:
            sys.exit(__doc__)
