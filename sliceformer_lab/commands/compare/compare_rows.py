"""The rows of a comparison: each attention with the plan of its runs, checked before the first one starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from sliceformer_lab.attention.own_operators import note_broken_rules
from sliceformer_lab.commands.compare.compare_options import (
    BASE_ROW,
    FIRST_SEED,
    ROWS_OF_PARTS,
    VARIANTS,
    Axis,
    CompareOptions,
)
from sliceformer_lab.commands.compare.search import OTHER_OPTIONS, Point
from sliceformer_lab.config.checked import RunPlan, check_config
from sliceformer_lab.config.compose import load_option
from sliceformer_lab.config.explain import job_config
from sliceformer_lab.config.plain_checks import missing_files, new_run_faults
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.errors import LabError
from sliceformer_lab.runs.names import short_digest
from sliceformer_lab.runs.sweep import PlannedJob, override_key
from sliceformer_lab.training.budget import model_cost, within_budget
from sliceformer_lab.training.build import build_data, build_task

RUN_WORDS = ("pictures=false", "reference=null")
TRIAL_WORD = "score_test=false"
RATE_OPTIONS = ("optim.lr", "optim.warmup_lr", "optim.min_lr")  # that every trial changes
TIME_OPTIONS = (  # that equal time sets
    *("optim.steps", "optim.epochs", "optim.target_steps", "optim.max_steps"),
    *("optim.interval", "optim.val_every", "optim.warmup_steps", "optim.horizon"),
)
WIDTH_OPTIONS = ("encoder.mlp_dim", "attention.inner_mult", "encoder.dim")  # that `budget_by` may change, in this order


@dataclass(eq=False)
class ComparedRow:
    """One row of a comparison. Its axes are filled in before their runs are planned."""

    name: str
    options: CompareOptions
    plan: RunPlan  # with the recipe's own values
    spec: DataSpec
    axis_words: dict[Axis, tuple[str, ...]] = field(default_factory=dict)  # of the axes that it can meet
    refused: dict[Axis, str] = field(default_factory=dict)  # why it cannot meet the others
    ways: tuple[tuple[str, ...], ...] = ()  # to the parameters of the base, the first for the trials of rates

    @property
    def words(self) -> tuple[str, ...]:
        """The overrides of all its runs, without seed, axis and tuned values."""
        return row_words(self.name, self.options)

    @property
    def own_rate(self) -> float:
        """The learning rate of its recipe."""
        return float(self.plan.plain["optim"]["lr"])

    @property
    def free_options(self) -> tuple[str, ...]:
        """The options that the comparison chooses on validation, or measures."""
        options = self.options
        free = [*RATE_OPTIONS, *((*OTHER_OPTIONS[options.search], "optim.warmup_steps") if options.trials else ())]
        free += WIDTH_OPTIONS if "params" in options.axes else []
        free += TIME_OPTIONS if "time" in options.axes else []
        return (*free, *(["data.split_seed"] if options.splits else []))

    @cached_property
    def contract_note(self) -> str | None:
        """The rules of the contract that the user's own operator breaks."""
        return note_broken_rules(self.name, self.plan.plain["attention"])

    def trial(self, point: Point, seed: int, sizes: Sequence[str] | None = None) -> PlannedJob:
        """A run that tries a point, with these sizes or those of the first axis; it does not score the test set."""
        sizes = self._size_words(self.options.axes[0]) if sizes is None else sizes
        words = (*self.words, *sizes, TRIAL_WORD, f"seed={seed}", *point.words(self.plan.plain["optim"]))
        return self._build_job("trial", words, seed)

    def reporting(self, axis: Axis, point: Point | None, seed: int) -> PlannedJob:
        """A run that scores the chosen point with a reporting seed; None: the recipe's own values."""
        split = (f"data.split_seed={seed - FIRST_SEED}",) if self.options.splits else ()
        tuned = () if point is None else point.words(self.plan.plain["optim"])
        return self._build_job("report", (*self.words, *self._size_words(axis), *split, f"seed={seed}", *tuned), seed)

    def _size_words(self, axis: Axis) -> tuple[str, ...]:
        """The words of an axis, or of another one where this row cannot meet it."""
        return self.axis_words.get(axis, next(iter(self.axis_words.values()), ()))

    def _build_job(self, kind: str, words: Sequence[str], seed: int) -> PlannedJob:
        """A job whose name depends on its words: equal runs of two axes are one run."""
        known = short_digest(" ".join(word for word in words if not word.startswith("paths.")))
        return PlannedJob(f"{kind}-{self.name}-{known}-seed{seed}", tuple(words))


def row_words(name: str, options: CompareOptions) -> tuple[str, ...]:
    """The overrides of the runs of a row. Options of the attention belong to the subject and its parts."""
    given = [word for word in options.words if _belongs_to_row(override_key(word), name, options.subject)]
    return (*RUN_WORDS, *given, *VARIANTS.get(name, (f"attention={name}",)))


def _belongs_to_row(key: str, name: str, subject: str) -> bool:
    """Whether a row takes a given option. A preset without a part of the subject keeps the options that define it."""
    node, _, option = key.partition(".")
    if node != "attention" or name == subject:
        return True
    if name not in ROWS_OF_PARTS.get(subject, ()):
        return False
    part, whole = load_option("attention", name), load_option("attention", subject)
    return option in part and part[option] == whole.get(option)


def checked_rows(options: CompareOptions) -> tuple[list[ComparedRow], dict[str, str]]:
    """The rows that can run, the subject first, and why the others cannot. Raises LabError if the subject cannot."""
    rows: list[ComparedRow] = []
    refused: dict[str, str] = {}
    for name in options.names:
        try:
            rows.append(ComparedRow(name, options, *checked_row(row_words(name, options), options.tuning_seeds[0])))
        except LabError as error:
            if name == options.subject:
                raise
            refused[name] = " ".join(str(error).split())
    if refused and len(rows) == 1:
        raise ConfigError(
            f"no row to compare {options.subject} with, the first because of: {next(iter(refused.values()))}"
        )
    if options.splits and "split_seed" not in rows[0].plan.plain["data"]:
        raise ConfigError(f"splits={options.splits}: these data have one split; give seeds=N")
    return rows, refused


def checked_row(words: Sequence[str], seed: int) -> tuple[RunPlan, DataSpec]:
    """The plan of a row's runs with its recipe's values, and its data. Raises LabError if it cannot run."""
    config = job_config([*words, f"seed={seed}"])
    if config["selection"] == "best_test":
        raise ConfigError("selection=best_test: a search must not see the test set; use best_val or last")
    given = {override_key(word) for word in words}
    plan = check_config(config, [*missing_files(config), *new_run_faults(config, given)])
    spec = build_data(plan).spec
    try:
        build_task(plan, spec)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return plan, spec


def solve_ways(rows: Sequence[ComparedRow]) -> int:
    """Give each row its ways to the parameters of mha, and return these. Raises ConfigError if the subject has none."""
    base, spec = checked_row(row_words(BASE_ROW, rows[0].options), rows[0].options.tuning_seeds[0])
    for row in rows:
        ways: dict[tuple[str, ...], None] = {}
        failure: ConfigError | None = None
        for width in WIDTH_OPTIONS:
            try:
                wanted = check_config({**row.plan.plain, "budget": f"params:{BASE_ROW}", "budget_by": width})
                solved = within_budget(wanted, spec).plain
            except ConfigError as error:
                failure = error
                continue
            node, _, option = width.partition(".")
            value = solved[node].get(option)
            ways[() if value == row.plan.plain[node].get(option) else (f"{width}={value}",)] = None
        if ways:
            row.ways = ((),) if () in ways else tuple(ways)
            row.axis_words["params"] = row.ways[0]
        elif row.name == row.options.subject and failure is not None:
            raise failure
        else:
            row.refused["params"] = str(failure)
    return model_cost(base, spec, "params")
