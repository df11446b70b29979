"""Writes summary.json, the record of a run, and prints the table at its end."""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from pytorch_lightning import Callback, LightningModule, Trainer
from rich.table import Table

from sliceformer_lab.config.checked import RunPlan
from sliceformer_lab.data.spec import Choice
from sliceformer_lab.errors import Interrupted, LabError
from sliceformer_lab.runs.commit import package_versions
from sliceformer_lab.runs.files import write_json
from sliceformer_lab.runs.folder import FORMAT, SUMMARY, known_summary
from sliceformer_lab.runs.papers import compare_published
from sliceformer_lab.runs.plain_text import PlainConsole, format_score
from sliceformer_lab.runs.printed_table import print_table
from sliceformer_lab.runs.run_summary import RunSummary
from sliceformer_lab.runs.score_options import changing_callbacks, describe_limits, flat_options
from sliceformer_lab.runs.sources import code_version
from sliceformer_lab.training.results.loggers import run_name

UNIT_METRICS = ("val/mae", "val/rmse", "test/mae", "test/rmse")  # in the unit of the targets
CHANCE_LEVEL = 0.01  # of the test that accuracy is above chance

log = logging.getLogger(__name__)


class Summary:
    """The record of one run: configuration, results and machine. Written when the run starts, fails or ends."""

    def __init__(self, plan: RunPlan, folder: Path) -> None:
        self._folder = folder
        self._started, self._worked = time.perf_counter(), time.process_time()
        earlier = known_summary(folder)  # by earlier starts, if the run was resumed
        starts = _earlier_starts(earlier)
        self._earlier_seconds = sum((start.seconds for start in earlier.starts), 0.0) if earlier else 0.0
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        commit = code_version(plan.plain)
        self._start: dict[str, Any] = {"time": now, "git_commit": commit}
        self.content: dict[str, Any] = {
            "format": FORMAT,
            "name": run_name(plan, folder),
            **dict(plan.names),
            "status": "running",
            "started": now,
            "starts": [*starts, self._start],
            "seed": plan.seed,
            "split_seed": plan.data.option("split_seed"),
            "tags": plan.tags,
            "published": plan.published,
            "budget": plan.budget,
            "options": _list_options(plan),
            "choices": [choice.recorded() for choice in earlier.choices] if earlier else [],  # chosen from the data
            "digests": earlier.digests if earlier else {},  # of the splits of the data
            "sources": earlier.sources if earlier else {},
            **({"pretrain": earlier.pretrain} if earlier and earlier.pretrain else {}),
            "machine": {"processor": platform.processor() or platform.machine(), "python": platform.python_version()},
            "versions": package_versions(),
            "git_commit": commit,
        }
        command = earlier.command if earlier else None  # of the first start; a damaged summary has lost it
        if command is not None or not plan.resume:
            self.content["command"] = list(plan.words) if command is None else command
        self._record_precision(plan)
        if starts and (before := starts[-1].get("git_commit", commit)) != commit:
            log.warning(
                f"WARNING: the code has changed since the previous start of this run, from commit {before} to "
                f"{commit}; the result does not come from one version (see starts in {SUMMARY})"
            )

    def _record_precision(self, plan: RunPlan) -> None:
        """Records the precision of this start, once it is known. Warns if the previous start had another."""
        now, starts = plan.trainer.precision, self.content["starts"]
        if now == "auto":
            return
        self._start["precision"] = now
        if len(starts) > 1 and (before := starts[-2].get("precision", now)) != now:
            log.warning(
                f"WARNING: trainer.precision={now} continues a run that was trained with {before}; the result is not "
                f"that of one uninterrupted run (starts in {SUMMARY})"
            )

    def record_data(self, digests: Mapping[str, str], sources: Mapping[str, str], changed: Sequence[str]) -> None:
        """Records the identity of the data, and the splits that changed since the previous start."""
        if changed:
            self._start["changed_data"] = list(changed)
        self.update(digests=dict(digests), sources=dict(sources))

    def choose(self, plan: RunPlan, choices: Sequence[Choice]) -> None:
        """Records the options that were chosen from the data."""
        if "precision" not in self._start:
            self._record_precision(plan)
        self.update(options=_list_options(plan), choices=[asdict(choice) for choice in choices])

    def update(self, **facts: object) -> None:
        """Adds facts and writes the file."""
        self.content |= facts
        self.content["wall_seconds"] = round(self.seconds(), 2)
        self.content["processor_seconds"] = round(time.process_time() - self._worked, 2)  # of this start and process
        self._start |= {"status": self.content["status"], "seconds": round(self.seconds() - self._earlier_seconds, 2)}
        write_json(self._folder / SUMMARY, self.content)

    def note_start(self, **facts: object) -> None:
        """Adds facts on this start and writes the file, so that a killed run keeps the time it took until then."""
        self._start |= facts
        self.update()

    def seconds(self) -> float:
        """The run's time so far, with that of earlier starts."""
        return self._earlier_seconds + time.perf_counter() - self._started

    def fail(self, error: BaseException) -> None:
        """Records the error that ended the run."""
        status = error.status if isinstance(error, LabError | Interrupted) else "failed"
        self.update(status=status, error=f"{type(error).__name__}: {error}")

    @property
    def error(self) -> str:
        """The error that ended the run; empty if it has ended well."""
        return str(self.content.get("error") or "")

    def dashboard_values(self) -> dict[str, Any]:
        """Metrics, costs and times for a dashboard's table of runs."""
        names = ("status", "parameters", "samples_per_second", "peak_memory_gb", "wall_seconds")
        scores = [row["metrics"] for row in self.content.get("references", []) if "metrics" in row]
        strongest = scores[-1] if scores else {}
        return {
            **self.content["metrics"],
            **self.content["cost_per_sample"],
            **{name: self.content[name] for name in names},
            "best_epoch": self.content["best"]["epoch"],
            "best_step": self.content["best"]["step"],
            **{f"reference/{name}": value for name, value in strongest.items()},
        }


class RecordPlace(Callback):
    """Records in a run's summary where its training starts and what its checkpoints hold."""

    def __init__(self, summary: Summary) -> None:
        self._summary = summary

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        del pl_module
        reached = max((start.get("to_step", 0) for start in self._summary.content["starts"][:-1]), default=0)
        if reached and not trainer.global_step:
            log.warning(f"WARNING: no checkpoint is left of the {reached:,} steps trained before; it begins anew")
        self._summary.note_start(from_step=trainer.global_step, processes=trainer.world_size)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        del pl_module, checkpoint
        self._summary.note_start(to_step=trainer.global_step)


def print_summary(summary: RunSummary, folder: Path, pictures: Sequence[Path]) -> None:
    """Prints a run's table, its comparison with a published number, a warning at chance level, and its files."""
    console = PlainConsole()
    table = Table(title=summary.name, show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for row in _list_rows(summary):
        table.add_row(*row)
    print_table(table)
    if comparison := compare_published(summary):
        console.print(comparison)
    for warning in (chance_warning(summary), *summary.warnings):
        if warning:
            log.warning(f"WARNING: {warning}")
    for path in (folder, *pictures):  # below the table, whose columns would wrap them
        console.print(str(path))


def chance_warning(summary: RunSummary) -> str | None:
    """The warning for a run whose accuracy is not shown to be above chance; None for all others."""
    if (found := _find_no_gain(summary)) is None:
        return None
    truncates = "max_len" in summary.options["data"]
    return (
        f"test accuracy is not shown to be above chance ({found.chance:.4f}, the most frequent class; "
        f"n = {found.num_test:,}, p = {found.p:.2g}, not below {CHANCE_LEVEL:g}); try a lower optim.lr or a "
        "longer optim.warmup_steps first, then more epochs"
        f"{'; does data.max_len cut off what decides the class?' if truncates else ''}"
    )


class _ChanceTest(NamedTuple):
    chance: float
    num_test: int
    p: float  # the probability of so many right answers at chance, by the exact binomial test


def _find_no_gain(summary: RunSummary) -> _ChanceTest | None:
    """The test that does not show accuracy to be above chance; None where it does.

    None too where accuracy does not select epochs, for answers at single tokens, whose chance level is a result, and
    after one batch of everything.
    """
    from sliceformer_lab.measures.statistics import p_above_chance  # slow to import

    if summary.options["trainer"]["fast_dev_run"] or summary.answers_tokens or summary.best.metric != "val/accuracy":
        return None
    reached = next((v for name, v in summary.metrics.items() if name.startswith("test/accuracy")), None)
    size = summary.protocol.num_test
    if reached is None or summary.chance is None or size is None:
        return None
    p = p_above_chance(round(reached * size), size, summary.chance)
    return _ChanceTest(summary.chance, size, p) if p >= CHANCE_LEVEL else None


def compare_metrics(recorded: Mapping[str, float | None], again: Mapping[str, float]) -> None:
    """Prints the recorded metrics next to those of a second scoring."""
    table = Table("metric", "recorded", "again")
    for name, value in again.items():
        before = format_score(recorded[name], digits=6) if name in recorded else ""
        table.add_row(name, before, format_score(value, digits=6))
    print_table(table)


def _list_rows(summary: RunSummary) -> list[tuple[str, str]]:
    """The rows of the table: data, scores, references, size, speed and time."""
    rows = [("data", _format_data(summary))]
    if summary.data_about is not None:
        rows.append(("", summary.data_about))
    for name, value in summary.metrics.items():
        if not name.endswith("loss"):
            unit = f" {summary.unit}" if summary.unit is not None and name.startswith(UNIT_METRICS) else ""
            rows.append((name, f"{format_score(value)}{unit}"))
    rows += [("reference", line) for line in _format_references(summary)]
    rows += [(f"test, {n} tokens", format_score(score)) for n, score in summary.accuracy_at_length.items()]
    rows += _format_floors(summary)
    if (found := _find_no_gain(summary)) is not None:
        always = f"always predicting the most frequent class gives {found.chance:.4f}"
        rows.append(("chance", f"not shown to be above it: {always}"))
    return [*rows, *_format_training(summary), *_format_costs(summary)]


def _format_data(summary: RunSummary) -> str:
    known = summary.protocol
    limits = describe_limits(dict(flat_options(summary.options)))
    examples = "" if known.num_train is None else f" ({known.num_train:,} training examples{limits})"
    return f"{known.data}{examples}"


def _format_training(summary: RunSummary) -> list[tuple[str, str]]:
    """The steps to a goal, and the epoch or step that was scored."""
    rows, best, known = [], summary.best, summary.protocol
    if (goal := summary.options["optim"].get("stop_at")) is not None:
        rows.append((f"steps to {goal}", str(summary.steps_to_stop_at or "not reached")))
    if best.step is not None and known.steps:
        rows.append(("scored step", f"{best.step:,} of {known.steps:,} ({known.selection})"))
    elif best.epoch is not None:
        rows.append(("scored epoch", f"{best.epoch + 1} of {known.epochs} ({known.selection})"))
    return rows


def _format_costs(summary: RunSummary) -> list[tuple[str, str]]:
    """Parameters, operations, speed, memory and time."""
    cost, longest = summary.cost_per_sample, summary.cost_of_longest
    length = "" if summary.mean_length is None else f" of {summary.mean_length} tokens, the mean"
    operations = f"{cost['multiply_adds']:,} per sample{length}, {cost['comparisons']:,} comparisons"
    rows = [("parameters", f"{summary.parameters:,}"), ("multiply-adds", operations)]
    if longest:
        rows.append(("", f"{longest['multiply_adds']:,} for the longest sequence of data.max_len"))
    if summary.samples_per_second is not None:
        rows.append(("training speed", f"{summary.samples_per_second:,.0f} samples/s"))
    if (fast := summary.prediction) is not None:
        many = f"{fast.inputs_per_second:,.0f} inputs/s in batches of {fast.batch}"
        rows.append(("prediction", f"{fast.latency_ms:.2f} ms for one input of the largest size, {many}"))
    if summary.peak_memory_gb is not None:
        rows.append(("peak memory", f"{summary.peak_memory_gb:.2f} GB"))
    return [*rows, ("time", f"{summary.wall_seconds:.0f} s")]


def _format_floors(summary: RunSummary) -> list[tuple[str, str]]:
    """Chance and bag level of answers at single tokens; nothing for other tasks."""
    if not summary.answers_tokens or summary.chance is None:
        return []
    bag = summary.bag_level
    rows = [("chance", f"{summary.chance:.4f}, from the asked token and its position")]
    return [*rows, *([] if bag is None else [("bag level", f"{bag:.4f}, from the set of symbols")])]


def _format_references(summary: RunSummary) -> list[str]:
    """A line for each reference: its score in the selection metric on the test set, or why it has none."""
    metric = str(summary.best.metric).replace("val/", "test/")
    found = []
    for row in summary.references:
        score = (row.metrics or {}).get(metric)
        line = row.skipped or "not scored" if score is None else f"{metric} {score:.4f}"
        if (gap := row.difference) is not None:
            line += f"; the run is {gap.place}: {gap.value:+.4f} ({gap.low:+.4f} to {gap.high:+.4f})"
        found.append(f"{row.name}: {line}")
    return found


def _list_options(plan: RunPlan) -> dict[str, dict[str, Any]]:
    """The options of each node that can change a score."""
    nodes = ["task", "data", "encoder", "block", "attention", "optim", "trainer"]
    nodes += ["pretrain"] if plan.pretrain is not None else []
    options = {node: {k: v for k, v in plan.plain[node].items() if k != "_target_"} for node in nodes}
    return options | {"callbacks": changing_callbacks(plan.plain)}


def _earlier_starts(summary: RunSummary | None) -> list[dict[str, Any]]:
    """The starts that a summary records; one that is still running was killed."""
    starts = [start.recorded() for start in summary.starts] if summary is not None else []
    return [start | ({"status": "killed"} if start.get("status") == "running" else {}) for start in starts]
