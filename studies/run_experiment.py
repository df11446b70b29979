"""Runs the jobs of a declared experiment that have no result yet, one after the other, and commits nothing itself.

usage: python studies/run_experiment.py studies/sets WORK data.root=CLOUDS    WORK: a folder for the runs

FOLDER/experiment.yaml declares the rows, rates, seeds and steps. FOLDER/results.jsonl gets a line a finished job, so
the experiment goes on where it stopped, on another machine too. Tuning comes first; a row's reporting runs use the rate
that its tuning chose. A line holds the commit, the digests of the data and, for a reporting run, which test examples
were right.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

RESULTS = "results.jsonl"
FACTS = ("git_commit", "digests", "steps", "processor_seconds", "parameters", "references")


@dataclass(frozen=True)
class Job:
    """One training of an experiment."""

    stage: str  # tune or report
    row: str
    rate: float
    seed: int

    def is_of(self, line: Mapping[str, Any]) -> bool:
        return (self.stage, self.row, self.rate, self.seed) == tuple(line[k] for k in ("stage", "row", "rate", "seed"))


@dataclass(frozen=True)
class Experiment:
    """What experiment.yaml declares."""

    command: tuple[str, ...]  # words of every run
    rows: Mapping[str, tuple[str, ...]]  # name of a row -> its words
    rates: tuple[float, ...]
    recipe_rate: float  # wins a tie
    tuning_seeds: tuple[int, ...]
    seeds: tuple[int, ...]
    metric: str  # of validation, higher is better

    def chosen_rate(self, row: str, lines: list[dict[str, Any]]) -> float | None:
        """The rate of the best mean validation score; None while a tuning run is missing."""
        means = {}
        for rate in self.rates:
            jobs = [Job("tune", row, rate, seed) for seed in self.tuning_seeds]
            scores = [line["val"] for job in jobs for line in lines if job.is_of(line)]
            if len(scores) < len(jobs):
                return None
            means[rate] = float(np.mean(scores))
        return max(self.rates, key=lambda rate: (means[rate], rate == self.recipe_rate))

    def jobs(self, lines: list[dict[str, Any]]) -> Iterator[Job]:
        """The jobs without a line, seed by seed, so that a stop leaves all rows at about the same number of seeds."""
        wanted = [
            Job("tune", row, rate, seed) for seed in self.tuning_seeds for row in self.rows for rate in self.rates
        ]
        rates = {row: self.chosen_rate(row, lines) for row in self.rows}
        if all(rate is not None for rate in rates.values()):
            wanted += [Job("report", row, rate, seed) for seed in self.seeds for row, rate in rates.items() if rate]
        yield from (job for job in wanted if not any(job.is_of(line) for line in lines))


def read_experiment(folder: Path) -> Experiment:
    """The experiment that FOLDER/experiment.yaml declares."""
    plain = yaml.safe_load((folder / "experiment.yaml").read_text(encoding="utf-8"))
    rows = {name: tuple(words.split()) for name, words in plain.pop("rows").items()}
    plain["command"] = plain["command"].split()
    return Experiment(rows=rows, **{key: tuple(v) if isinstance(v, list) else v for key, v in plain.items()})


def read_lines(folder: Path) -> list[dict[str, Any]]:
    file = folder / RESULTS
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def run_job(experiment: Experiment, job: Job, work: Path, machine_words: list[str]) -> dict[str, Any]:
    """Trains one job and returns its line. Raises CalledProcessError if the run fails."""
    folder = work / f"{job.stage}-{job.row}-{job.rate:g}-{job.seed}"
    words = [*experiment.command, *experiment.rows[job.row], f"optim.lr={job.rate:g}", f"seed={job.seed}"]
    if job.stage == "tune":
        words += ["score_test=false", "reference=null"]
    summary_file = folder / "summary.json"
    if not (summary_file.exists() and json.loads(summary_file.read_text(encoding="utf-8"))["status"] == "ok"):
        command = [sys.executable, "-m", "sliceformer_lab", *words, *machine_words, f"hydra.run.dir={folder}"]
        subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, cwd=work)
    summary = json.loads(summary_file.read_text(encoding="utf-8"))
    line = {"stage": job.stage, "row": job.row, "rate": job.rate, "seed": job.seed, "words": words}
    line |= {"val": summary["metrics"][experiment.metric]} | {fact: summary.get(fact) for fact in FACTS}
    if job.stage == "report":
        line["test_right"] = pack_right(folder / "predictions.npz")
    return line


def pack_right(file: Path) -> str:
    """Which test examples were right, in the order of their ids, as base64 of packed bits."""
    with np.load(file) as arrays:
        order = np.argsort(arrays["test_ids"], kind="stable")
        right = arrays["test_logits"].argmax(-1) == arrays["test_targets"]
    return base64.b64encode(np.packbits(right[order])).decode()


def main(folder: Path, work: Path, machine_words: list[str]) -> None:
    experiment = read_experiment(folder)
    work.mkdir(parents=True, exist_ok=True)
    while job := next(experiment.jobs(lines := read_lines(folder)), None):
        sys.stderr.write(f"{len(lines)} finished; now {job}\n")
        line = run_job(experiment, job, work, machine_words)
        with (folder / RESULTS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
