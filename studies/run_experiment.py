"""Runs the jobs of a declared experiment that have no result yet, one after the other, and commits nothing itself.

usage: python studies/run_experiment.py studies/sets WORK data.root=CLOUDS    WORK: a folder for the runs

The words after WORK say where things are on this machine; what the runs are, experiment.yaml alone says. A second
process with the same WORK takes the jobs that the first has not begun.

FOLDER/experiment.yaml declares the rows, rates, seeds and steps. FOLDER/results.jsonl gets a line a finished job, so
the experiment goes on where it stopped, on another machine too. An experiment with several `settings` has one family
of comparisons and one file, FOLDER/SETTING.jsonl, for each, and a setting may name some of the rows only. Tuning comes
first, where a run that diverged counts as the best constant prediction; a row's reporting runs use the rate that its
tuning chose.

A line holds the commit, the digests of the data and, for a reporting run, the scores of the single test examples:
`test_right`, packed bits, or `test_scores`, float16, as base64 in the order of the examples' ids. A line with other
words than declared or with other data is refused.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, product
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import yaml
from filelock import FileLock, Timeout
from result_lines import check_lines

from sliceformer_lab.__main__ import main as run_command
from sliceformer_lab.commands.compare.search import to_digits
from sliceformer_lab.errors import ConfigError, DataError, LabError, RunFolderError
from sliceformer_lab.runs.folder import known_summary
from sliceformer_lab.sweeps.fork_server import begin_job, fork_server

FACTS = ("git_commit", "digests", "steps", "processor_seconds", "parameters", "references")
ENDED = ("ok", "diverged")  # statuses of runs that are not tried again
MACHINE_KEYS = ("data.root", "data.num_workers")  # beside paths.*: what may differ between machines
SECONDS_BETWEEN_LOOKS = 10.0  # while other processes run the last jobs of a stage


@dataclass(frozen=True)
class Job:
    """One training of an experiment."""

    stage: str  # tune or report
    row: str
    rate: float
    seed: int

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> Job:
        """The job of a finished line."""
        return cls(line["stage"], line["row"], line["rate"], line["seed"])


@dataclass(frozen=True)
class Experiment:
    """What experiment.yaml declares."""

    results: Path  # file of its finished jobs
    command: tuple[str, ...]  # words of every run
    rows: Mapping[str, tuple[str, ...]]  # name of a row -> its words
    rates: tuple[float, ...]
    recipe_rate: float  # wins a tie
    tuning_seeds: tuple[int, ...]
    seeds: tuple[int, ...]
    metric: str  # of validation
    better: str  # higher | lower
    constant: float  # the metric of the best constant prediction, on validation
    num_val: int  # validation examples
    num_test: int
    margin: float  # differences below it count as equal
    subject: str  # the row that the others are compared with

    @property
    def sign(self) -> float:
        """The factor that makes larger values better."""
        return {"higher": 1.0, "lower": -1.0}[self.better]

    def lines(self) -> list[dict[str, Any]]:
        """The finished jobs. Raises DataError as `check`."""
        file = self.results
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
        self.check(lines)
        return lines

    def check(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Raises DataError for a line of another row, of other words or other data, and for a job with two lines.

        Training data may follow from the seed, as those of a probe do.
        """
        for line in lines:
            if line["row"] not in self.rows:
                raise DataError(f"{self.results}: experiment.yaml declares no row {line['row']}")
        check_lines(
            self.results,
            lines,
            job_of=Job.of,
            words_of=lambda line: job_words(self, Job.of(line)),
            data_of=lambda line, split: line["seed"] if split == "train" else None,
        )

    def tuning_scores(self, row: str, lines: list[dict[str, Any]]) -> dict[float, list[float]]:
        """The validation scores of each rate, by seed; fewer than tuning seeds while a run is missing."""
        jobs = {rate: [Job("tune", row, rate, seed) for seed in self.tuning_seeds] for rate in self.rates}
        return {rate: [line["val"] for job in jobs[rate] for line in lines if Job.of(line) == job] for rate in jobs}

    def chosen_rate(self, row: str, lines: list[dict[str, Any]]) -> float | None:
        """The rate of the best mean validation score; None while a tuning run is missing."""
        scores = self.tuning_scores(row, lines)
        if any(len(found) < len(self.tuning_seeds) for found in scores.values()):
            return None
        means = {rate: to_digits(self.sign * fmean(found)) for rate, found in scores.items()}
        return max(self.rates, key=lambda rate: (means[rate], rate == self.recipe_rate))

    def missing(self, lines: list[dict[str, Any]]) -> tuple[list[Job], list[Job]]:
        """The tuning and reporting jobs without a line; no reporting jobs while a tuning run is missing.

        They go seed by seed, so that a stop leaves all rows at about the same number of seeds.
        """
        finished = {Job.of(line) for line in lines}
        tuning = [Job("tune", *job, seed) for seed in self.tuning_seeds for job in product(self.rows, self.rates)]
        if missing := [job for job in tuning if job not in finished]:
            return missing, []
        rates = {row: rate for row in self.rows if (rate := self.chosen_rate(row, lines))}
        reporting = [Job("report", row, rate, seed) for seed in self.seeds for row, rate in rates.items()]
        return [], [job for job in reporting if job not in finished]


def read_experiments(folder: Path) -> list[Experiment]:
    """What FOLDER/experiment.yaml declares: one experiment, or one for each of its settings. Raises ConfigError."""
    if not (folder / "experiment.yaml").is_file():
        raise ConfigError(f"{folder} has no experiment.yaml; name the folder of an experiment, such as studies/sets")
    plain = yaml.safe_load((folder / "experiment.yaml").read_text(encoding="utf-8"))
    rows = {name: tuple(words.split()) for name, words in plain.pop("rows").items()}
    command, settings = plain.pop("command"), plain.pop("settings", {"results": {}})
    found = []
    for name, own in settings.items():
        of_setting = {row: rows[row] for row in own.pop("rows", rows)}
        facts = plain | own | {"command": f"{command} {own.get('command', '')}".split()}
        kept: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in facts.items()}
        found.append(Experiment(results=folder / f"{name}.jsonl", rows=of_setting, **kept))
    return found


def job_name(experiment: Experiment, job: Job) -> str:
    """The name of a job's run folder, and of its lock."""
    setting = "" if experiment.results.stem == "results" else f"{experiment.results.stem}-"
    return f"{setting}{job.stage}-{job.row}-{job.rate:g}-{job.seed}"


def claim(experiment: Experiment, job: Job, work: Path) -> FileLock | None:
    """The held lock of a job without a line; None if another process runs the job or has just finished it."""
    lock = FileLock(work / f"{job_name(experiment, job)}.lock")
    with suppress(Timeout):
        lock.acquire(timeout=0)
        if job not in map(Job.of, experiment.lines()):
            return lock
        lock.release()
    return None


def job_words(experiment: Experiment, job: Job) -> list[str]:
    """The words of a job's command line. Only the first reporting run fits references; all have the same examples."""
    words = [*experiment.command, *experiment.rows[job.row], f"optim.lr={job.rate:g}", f"seed={job.seed}"]
    if job.stage == "tune":
        words += ["score_test=false"]
    is_first = (job.stage, job.row, job.seed) == ("report", next(iter(experiment.rows)), experiment.seeds[0])
    if not is_first and "reference=null" not in words:
        words += ["reference=null"]
    return words


def run_job(experiment: Experiment, job: Job, work: Path, machine_words: list[str]) -> dict[str, Any]:
    """Trains one job and returns its line. A tuning run that diverged counts as the best constant prediction.

    Raises RunFolderError if the run fails or a reporting run diverges, DataError for a run of other words.
    """
    folder = work / job_name(experiment, job)
    words = job_words(experiment, job)
    before = known_summary(folder)
    if before is None or before.status not in ENDED:
        shutil.rmtree(folder, ignore_errors=True)  # what a stopped run left
        train(work, [*words, *machine_words, f"hydra.run.dir={folder}"])
    summary = known_summary(folder)
    ended = "failed" if summary is None else summary.status  # one that was refused leaves no summary
    if summary is None or ended not in ENDED or (ended == "diverged" and job.stage == "report"):
        raise RunFolderError(f"{folder}: the run has status {ended}: {shlex.join(words)}")
    if other := sorted(set(words) - set(summary.command or ())):
        raise DataError(f"{folder}: a run without {' '.join(other)}; name another folder for the runs")
    recorded = summary.recorded()
    line = {"stage": job.stage, "row": job.row, "rate": job.rate, "seed": job.seed, "words": words}
    line |= {fact: recorded.get(fact) for fact in FACTS}
    if ended == "diverged":
        return line | {"val": experiment.constant, "val_std": 0.0, "diverged": True}
    line["val"] = summary.metrics[experiment.metric]
    name = experiment.metric.removeprefix("val/")
    line["val_std"] = float(example_scores(folder / "predictions.npz", "val", name).std(ddof=1))
    if job.stage == "report":
        line |= packed(example_scores(folder / "predictions.npz", "test", name))
    return line


def train(work: Path, words: list[str]) -> None:
    """Trains in a process that is forked with the libraries, which saves ten seconds a run.

    The run ends with this process, however that ends.
    """
    os.environ["OMP_NUM_THREADS"] = "1"
    context = fork_server([])
    lifeline, held_here = context.Pipe(duplex=False)
    with held_here:
        process = context.Process(target=_train_in, args=(work, words, lifeline))
        process.start()
        process.join()


def _train_in(work: Path, words: list[str], lifeline: Connection) -> None:
    begin_job(lifeline)
    os.chdir(work)
    sys.exit(run_command(words))


def example_scores(file: Path, split: str, metric: str) -> np.ndarray:
    """Whether each example was right, the share of its asked tokens that were, or its absolute error, by id: (E,)."""
    with np.load(file) as arrays:
        order = np.argsort(arrays[f"{split}_ids"], kind="stable")
        targets, outputs = (arrays[f"{split}_{part}"][order] for part in ("targets", "logits"))
    if metric == "mae":
        errors: np.ndarray = np.abs(outputs.astype(np.float64) - targets).reshape(len(targets), -1).mean(1)
        return errors
    if targets.ndim == 1:
        return np.asarray(outputs.argmax(1) == targets)
    are_ranks = targets.dtype.kind == "f"  # of a probe that asks for the i-th smallest at position i
    right = outputs == (np.arange(targets.shape[1]) if are_ranks else targets)
    asked = np.ones_like(right) if are_ranks else targets >= 0
    shares: np.ndarray = (right & asked).sum(1) / asked.sum(1)
    return shares


def packed(scores: np.ndarray) -> dict[str, str]:
    """Scores (E,) of single examples as text: packed bits if each is right or wrong, otherwise float16."""
    if scores.dtype == bool:
        return {"test_right": base64.b64encode(np.packbits(scores).tobytes()).decode()}
    return {"test_scores": base64.b64encode(scores.astype("<f2").tobytes()).decode()}


def unpacked(line: Mapping[str, Any], count: int) -> np.ndarray:
    """The scores (E,) of the first `count` examples of a line, as numbers."""
    if "test_right" in line:
        bits = np.frombuffer(base64.b64decode(line["test_right"]), np.uint8)
        return np.unpackbits(bits, count=count).astype(np.float64)
    return np.frombuffer(base64.b64decode(line["test_scores"]), "<f2")[:count].astype(np.float64)


def check_machine_words(words: Sequence[str]) -> None:
    """Raises ConfigError for a word that would make the runs others than declared; a line would not show it."""
    for word in words:
        key, equals, _ = word.partition("=")
        if not equals or not (key.startswith("paths.") or key in MACHINE_KEYS):
            raise ConfigError(
                f"{word}: only words that say where things are on this machine may follow the folder of the runs "
                f"(paths.*, {', '.join(MACHINE_KEYS)}); what a run is, experiment.yaml says"
            )


def main(folder: Path, work: Path, machine_words: list[str]) -> None:
    """Run the missing jobs of an experiment. Raises LabError."""
    if "=" in str(work):
        raise ConfigError(f"{work}: the folder for the runs comes before the words KEY=VALUE")
    check_machine_words(machine_words)
    experiments = read_experiments(folder)
    work.mkdir(parents=True, exist_ok=True)
    for experiment in experiments:
        while jobs := list(chain(*experiment.missing(experiment.lines()))):
            claims = ((job, lock) for job in jobs if (lock := claim(experiment, job, work)))
            job, lock = next(claims, (None, None))
            if job is None or lock is None:
                time.sleep(SECONDS_BETWEEN_LOOKS)
                continue
            try:
                sys.stderr.write(f"{experiment.results.stem}: {len(jobs)} of this stage left; now {job}\n")
                line = run_job(experiment, job, work, machine_words)
                experiment.check([*experiment.lines(), line])
                with experiment.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
            finally:
                lock.release()


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
    except LabError as error:
        sys.exit(str(error))
