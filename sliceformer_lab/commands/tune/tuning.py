"""Runs a search from its first trial to its report. Everything it knows is in its folder, so it can stop anywhere."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sliceformer_lab.cli.run_jobs import run_jobs
from sliceformer_lab.commands.tune.medians import median_curve
from sliceformer_lab.commands.tune.search_space import MOST_GROWTHS, Batch, Edge, Space, edges, first_space, grow, parts
from sliceformer_lab.commands.tune.subjects import Subject, subjects
from sliceformer_lab.commands.tune.trials import Trial, Trials, open_journal
from sliceformer_lab.commands.tune.tune_options import TuneOptions
from sliceformer_lab.commands.tune.tune_results import Record, results
from sliceformer_lab.commands.tune.write_tune_report import write_report
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.errors import LabError
from sliceformer_lab.runs.commit import git_commit
from sliceformer_lab.runs.files import write_json
from sliceformer_lab.runs.folder import lock_folder
from sliceformer_lab.runs.job_state import JobState
from sliceformer_lab.runs.sweep import PlannedJob
from sliceformer_lab.runs.tuned import BEST
from sliceformer_lab.sweeps.plan import named_modules
from sliceformer_lab.sweeps.queue import Launcher
from sliceformer_lab.training.goal import Goal, goal

PLAN, TRIALS, FINAL, REPORT = "tune.json", "trials", "final", "report"
MAY_DIFFER = ("folder", "seeds", "untuned")  # options that a search may get another value of when it goes on

log = logging.getLogger(__name__)


def run(options: TuneOptions, launcher: Launcher) -> None:
    """Run or continue a search: trials, final runs, report. Raises LabError."""
    folder = Path(options.folder).expanduser().resolve()
    compared = subjects(options)
    wanted = goal(compared[0].config)
    with lock_folder(folder):
        _write_plan(folder, options, wanted, compared)
        log.info(
            f"tune: {options.trials} trials and {options.seeds} final runs for each of "
            f"{', '.join(options.attentions)}\n  in {folder}\n  if it is stopped, the same command goes on"
        )
        driver = Driver(folder, compared, wanted, options, launcher)
        driver.search()
        driver.write_best()
        driver.final_runs()
        write_report(results(driver.record(), folder / FINAL), folder / REPORT)


class Driver:
    """The order of a search: rounds of trials, growth of the space, final runs."""

    def __init__(
        self, folder: Path, compared: Sequence[Subject], wanted: Goal, options: TuneOptions, launcher: Launcher
    ) -> None:
        self._folder, self._options, self._goal, self._launcher = folder, options, wanted, launcher
        journal = open_journal(folder)
        self._trials = {one: Trials(journal, one.attention, wanted.mode, options) for one in compared}
        self._space = first_space(options.search)
        self._growths: list[list[Edge]] = []

    def search(self) -> None:
        """Run all trials. Each growth of the space brings as many new trials to every attention.

        Which edges the space grows at follows from the trials before, so a search that goes on grows it again.
        """
        numbered = self._run_batches([Batch(self._space, self._options.trials)], first=0)
        while len(self._growths) < MOST_GROWTHS:
            best = [trials.best() for trials in self._trials.values()]
            found = edges(self._space, [trial.point for trial in best if trial is not None])
            if not found:
                return
            self._space, batches = grow(self._space, found, self._options.growth_trials)
            self._growths.append(found)
            log.info(f"tune: the best value is at an edge, so the space grows: {', '.join(map(' '.join, found))}")
            numbered = self._run_batches(batches, first=numbered)

    def write_best(self) -> None:
        """Write best.json. Raises LabError if no trial of any attention has finished."""
        best = {subject: trial for subject, trials in self._trials.items() if (trial := trials.best()) is not None}
        if not best:
            reasons = [trial.reason for trials in self._trials.values() for trial in trials.all() if trial.reason]
            raise LabError(
                f"no trial finished, the first because of: {next(iter(reasons), 'an unknown reason')}; mend that, "
                f"delete {self._folder} and start again"
            )
        entries = {
            subject.attention: {
                "trial": trial.number,
                "value": trial.value,
                "words": subject.optim_words(trial.point),
                "found": subject.found_words(trial.point),
            }
            for subject, trial in best.items()
        }
        metric = {"metric": f"val/{self._goal.monitor}", "mode": self._goal.mode}
        write_json(self._folder / BEST, {**metric, "attention": entries})

    def final_runs(self) -> None:
        """Train each attention with its best values and new seeds, and with untuned=true with the recipe's own, too."""
        jobs = []
        for seed in self._options.final_seeds:
            for subject, trials in self._trials.items():
                if best := trials.best():
                    jobs.append(subject.final(seed, best.point))
                    jobs += [subject.final(seed, None)] if self._options.untuned and best.number else []
        self._run(FINAL, jobs, jobs)

    def record(self) -> Record:
        """What the search has found so far."""
        return Record(
            self._folder,
            self._options,
            self._goal,
            self._space,
            tuple(map(tuple, self._growths)),
            {subject: tuple(trials.all()) for subject, trials in self._trials.items()},
        )

    def _run_batches(self, batches: Sequence[Batch], first: int) -> int:
        """Run trials numbered from `first`, drawn from the batches; returns the next number."""
        spaces: list[Space] = []
        for batch in batches:
            own = [batch.space] if first + len(spaces) == 0 else []  # trial 0 is not drawn
            drawn = batch.count - len(own)
            is_random = self._options.sampler == "random"
            seed = (self._options.seed, first + len(spaces))
            spaces += [*own, *(parts(batch.space, drawn, seed) if is_random and drawn else [batch.space] * drawn)]
        size = self._options.trials_at_once or len(spaces)
        for start in range(0, len(spaces), size):
            self._run_round(dict(enumerate(spaces[start : start + size], first + start)))
        return first + len(spaces)

    def _run_round(self, spaces: Mapping[int, Space]) -> None:
        """Ask for trials, run what has not ended, and record how they ended.

        All trials of a round are asked for before one runs, so that their points do not depend on where a search was
        stopped.
        """
        for number, space in spaces.items():
            for subject, trials in self._trials.items():
                trials.ask(number, space, subject.own_point(space))
        waiting = {
            self._job(subject, trial): (trials, trial.number)
            for number in spaces
            for subject, trials in self._trials.items()
            for trial in trials.running()
            if trial.number == number
        }
        if not waiting:
            return
        if self._options.prune == "median":
            self._write_medians(before=min(spaces))
        ends = self._run(TRIALS, self._asked(), list(waiting))
        for job, (trials, number) in waiting.items():
            trials.end(number, ends[job.name])

    def _run(self, part: str, jobs: Sequence[PlannedJob], left: Sequence[PlannedJob]) -> Mapping[str, JobState]:
        modules = {module for subject in self._trials for module in named_modules(subject.config)}
        return run_jobs(self._folder / part, jobs, left, self._launcher, sorted(modules))

    def _asked(self) -> list[PlannedJob]:
        """The jobs of all trials so far, the attentions in turn."""
        numbered = [
            (trial.number, self._job(subject, trial)) for subject, t in self._trials.items() for trial in t.all()
        ]
        return [job for _, job in sorted(numbered, key=lambda pair: pair[0])]

    def _job(self, subject: Subject, trial: Trial) -> PlannedJob:
        return subject.trial(trial.number, trial.point, self._medians(subject))

    def _medians(self, subject: Subject) -> Path:
        return self._folder / TRIALS / f"{subject.attention}-medians.json"

    def _write_medians(self, before: int) -> None:
        """Write what trials are compared with: the finished ones of earlier rounds, with numbers below `before`."""
        for subject, trials in self._trials.items():
            earlier = [trial for trial in trials.all() if trial.number < before and trial.status == "ok"]
            folders = [self._folder / TRIALS / self._job(subject, trial).name for trial in earlier]
            self._medians(subject).parent.mkdir(exist_ok=True)
            write_json(self._medians(subject), median_curve(folders, self._goal))


def _write_plan(folder: Path, options: TuneOptions, wanted: Goal, compared: Sequence[Subject]) -> None:
    """Write tune.json, or find that it is of the same search. Raises ConfigError."""
    file = folder / PLAN
    facts: dict[str, Any] = {"commit": git_commit(), "optuna": version("optuna")}
    plan = {"options": asdict(options), "goal": asdict(wanted), "own": {one.attention: one.own for one in compared}}
    if file.exists():
        facts = _read_plan(file)
        there, now = _fixed(facts), _fixed(json.loads(json.dumps(plan)))
        if changed := sorted(key for key in {*there, *now} if there.get(key) != now.get(key)):
            raise ConfigError(f"{folder} holds a search that differs in {', '.join(changed)}; choose another folder=")
    write_json(file, facts | plan)


def _read_plan(file: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        _fixed(content)
    except (OSError, ValueError, RecursionError, TypeError, AttributeError) as error:
        raise ConfigError(f"{file} cannot be read as the plan of a search ({error})") from error
    return content


def _fixed(plan: Mapping[str, Any]) -> dict[str, Any]:
    """What must be the same when a search goes on. Where data and outputs are may differ."""
    options = {key: value for key, value in plan.get("options", {}).items() if key not in MAY_DIFFER}
    words = sorted(word for word in options.pop("words", []) if not word.startswith("paths."))
    recipe = {"goal": plan.get("goal"), "own values of the recipe": plan.get("own"), "options of its runs": words}
    return options | recipe
