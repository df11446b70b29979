"""Groups runs into tables and rows: a table per task, data and protocol, a row per attention and its options."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from sliceformer_lab.config.compose import option_names, preset_job
from sliceformer_lab.config.plain_checks import WEIGHTS
from sliceformer_lab.errors import ConfigError, LabError
from sliceformer_lab.runs.collect import REPLICATES, Collection, MissingRun, RunRecord, Unit, moment
from sliceformer_lab.runs.papers import FULL_SCALE, TRIAL_OPTIONS
from sliceformer_lab.runs.score_options import COMPUTING_OPTIONS, LIMITS, LOADING_OPTIONS, tidy_options
from sliceformer_lab.runs.sources import Sources, digests_of
from sliceformer_lab.runs.table_title import format_title

# options in which the runs of one row may differ
PER_RUN_OPTIONS = {*LOADING_OPTIONS, *COMPUTING_OPTIONS, *REPLICATES, "data.tokenizer_folder"}
SAME_DATA = ("data", "official", "sha256", "score_test")
SAME_LIMITS = ("limit_train", "limit_val", "limit_train_batches", "limit_val_batches")
SIZES = ("num_train", "num_val", "num_test")
SPLIT_SEED = "data.split_seed"
SHARES = ("data.val_fraction", "data.test_fraction", *LIMITS)
READ_FOLDERS = (*WEIGHTS, "data.tokenizer_folder")  # of weights and a tokenizer; their content counts
PATTERN, OF_MEMBERS = "attention.pattern", "attention.options."  # of a hybrid; options of an attention in its pattern
ABSENT = "absent"  # the value of an option that a run does not have

Options = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """The runs of one attention with the same options: one per seed and split."""

    attention: str
    options: Options  # all options that can change a result
    shown: Options  # options in which it differs from the baseline of its table
    factors: tuple[Any, ...]  # the values of the options in `by`
    runs: tuple[RunRecord, ...]
    repeated: tuple[RunRecord, ...]  # further runs with a seed and split of `runs`
    missing: tuple[MissingRun, ...]

    @property
    def label(self) -> str:
        """The attention and the options shown."""
        return " ".join([self.attention, *(f"{name}={format_option(value)}" for name, value in self.shown.items())])

    def values(self, metric: str) -> dict[Unit, float]:
        """A metric by seed and split, for the runs that have it."""
        found = {run.unit: run.metric(metric) for run in self.runs}
        return {unit: value for unit, value in found.items() if value is not None}


@dataclass(frozen=True)
class Table:
    """The rows for one task, data set and protocol."""

    title: str
    metric: str
    by: tuple[str, ...]
    usual: Options  # the baseline value of each option that some row shows
    rows: tuple[Row, ...]

    @property
    def has_result(self) -> bool:
        """Whether a run of it has finished."""
        return any(run.protocol.is_recorded for row in self.rows for run in (*row.runs, *row.repeated))

    def reference_for(self, row: Row, reference: str) -> Row | None:
        """The row of the reference attention that shares most options with `row`; `row` itself if it is one."""
        if row.attention == reference:
            return row
        alike = [other for other in self.rows if other.attention == reference and other.values(self.metric)]
        return min(alike, key=lambda other: _num_different(row, other), default=None)

    def opponent(self, row: Row, reference: str) -> Row | None:
        """The row to compare `row` with: the first that differs only in `by`; without `by`, the reference.

        In a table without the reference attention it is the row of the same attention with the baseline's options.
        """
        if not self.by:
            plain_row = next((other for other in self.rows if other.label == row.attention), None)
            chosen = self.reference_for(row, reference) or plain_row
        else:
            alike = [other for other in self.rows if _row_without(other, self.by) == _row_without(row, self.by)]
            chosen = next((other for other in alike if other.values(self.metric)), None)
        return None if chosen is row else chosen


def tables(found: Collection, by: Sequence[str], metric: str | None) -> list[Table]:
    """The tables of all runs found. Raises ConfigError for an option in `by` or a metric that no run has."""
    runs = found.runs
    known = {name for run in runs for name in run.options}
    for name in by:
        if name not in known:
            raise ConfigError(
                f"by: no run below {found.folder} has an option {name}; give option names such as encoder.depth"
            )
    if metric is not None and runs and all(run.metric(metric) is None for run in runs):
        there = sorted({name for run in runs for name in run.summary.metrics})
        raise ConfigError(
            f"metric={metric}: no run below {found.folder} has it; there are {', '.join(there) or 'none'}"
        )
    groups: dict[str, list[RunRecord]] = defaultdict(list)
    keys = {run.folder: key for run in runs if (key := _group_key(run)) is not None}
    ended: dict[str, Counter[str]] = defaultdict(Counter)  # tables of the finished runs, by their data options
    for run in runs:
        if run.folder in keys:
            ended[_data_options(run)][keys[run.folder]] += 1
    for run in runs:
        wanted = _data_options(run)
        likely = ended[wanted].most_common(1)[0][0] if wanted in ended else wanted
        groups[keys.get(run.folder, likely)].append(run)
    made = [_build_table(group, found.missing, tuple(by), metric) for _, group in sorted(groups.items())]
    titles = Counter(table.title for table in made)
    named = [replace(table, title=_add_digest(table)) if titles[table.title] > 1 else table for table in made]
    return list(_number_titles(named))


def _number_titles(named: Sequence[Table]) -> Iterator[Table]:
    """The tables, with a number behind a repeated title: a limit above the size of a split hides in it."""
    seen: Counter[str] = Counter()
    for table in named:
        seen[table.title] += 1
        number = seen[table.title]
        yield table if number == 1 else replace(table, title=f"{table.title}, table {number}")


def _add_digest(table: Table) -> str:
    """The title with the digest of the data, for tables of data with one name."""
    runs = (run for row in table.rows for run in row.runs)
    digest = next((run.protocol.sha256 for run in runs if run.protocol.sha256), None)
    return f"{table.title}, data {digest[:8]}" if digest else table.title


def _group_key(run: RunRecord) -> str | None:
    """The facts that the runs of one table share; None for a run that stopped before it recorded its data."""
    if not run.protocol.is_recorded:
        return None
    same = {name: getattr(run.protocol, name) for name in (*SAME_DATA, *SAME_LIMITS)}
    same |= {name: run.options.get(name) for name in TRIAL_OPTIONS}  # trials get tables of their own
    sizes = {name: getattr(run.protocol, name) for name in SIZES}
    if SPLIT_SEED in run.options:  # the folds of a cross-validation differ in size by an example of each class
        is_whole = all(run.options.get(name) is None for name in LIMITS)  # a limit leaves other numbers of other folds
        total = {"num": sum(size or 0 for size in sizes.values())} if is_whole else {}
        sizes = total | {name: run.options.get(name) for name in SHARES}
    same |= sizes
    return _format_value([run.task, run.scale, run.selection, same, run.mixed_data])


def _data_options(run: RunRecord) -> str:
    """The options that decide which table a run will belong to; known before its data is read."""
    apart = {*PER_RUN_OPTIONS, "data.batch_size", "data.token_order"}
    data = {name: v for name, v in run.options.items() if name.startswith("data.") and name not in apart}
    cut = {name: v for name, v in run.options.items() if name.startswith("trainer.limit_") or name in TRIAL_OPTIONS}
    own = [run.data if "data.name" in run.options else "", digests_of(_data_sources(run))]
    return _format_value([run.task, run.scale, run.selection, own, data, cut])


def _build_table(
    runs: list[RunRecord], missing: Iterable[MissingRun], by: tuple[str, ...], metric: str | None
) -> Table:
    usual = _common_options(runs)
    rows = []
    for group in _groups_of_rows(runs, by):
        first = group[0]
        options = _result_options(first)
        per_fold = {name for run in group for name, value in _result_options(run).items() if value != options.get(name)}
        kept, repeated = _one_per_unit(group)
        folders = {run.folder for run in group}
        rows.append(
            Row(
                attention=first.attention,
                options=options,
                shown={
                    name: value
                    for name, value in _own_options(first.attention, options, usual).items()
                    if name not in by and name not in per_fold
                },
                factors=tuple(options.get(name, ABSENT) for name in by),
                runs=kept,
                repeated=repeated,
                missing=tuple(job for job in missing if job.sibling in folders),
            )
        )

    def order(row: Row) -> tuple[str, str, list[tuple[bool, bool, float, str]]]:
        baseline = [usual.get((row.attention, name), usual.get(("", name))) for name in by]
        return row.attention, row.label, [_sort_key(*pair) for pair in zip(row.factors, baseline, strict=True)]

    rows.sort(key=order)
    shown = sorted({name for row in rows for name in row.shown})
    known = {name: usual["", name] for name in shown if ("", name) in usual}
    return Table(format_title(runs), _choose_metric(runs, metric), by, known, tuple(rows))


def _groups_of_rows(runs: Iterable[RunRecord], by: Sequence[str]) -> list[list[RunRecord]]:
    """The runs of each row: those with equal options.

    Folds may differ in what was chosen from their examples, but not in the options that the table compares.
    """
    grouped: dict[str, list[RunRecord]] = defaultdict(list)
    for run in runs:
        grouped[_format_value([run.attention, _result_options(run)])].append(run)
    rows: list[list[RunRecord]] = []
    latest: dict[str, list[RunRecord]] = {}  # row by the options that its runs were given
    for group in grouped.values():
        chosen = group[0].choices.difference(by)
        given = {name: value for name, value in _result_options(group[0]).items() if name not in chosen}
        row = latest.get(key := _format_value([group[0].attention, given]), [])
        if row and {run.unit[1] for run in row}.isdisjoint(run.unit[1] for run in group):
            row += group
        else:
            rows.append(group)
            latest[key] = group
    return rows


def _result_options(run: RunRecord) -> Options:
    """The options that can change a result; pretrained weights and tokenizers are their content, wherever they lie."""
    options = {name: value for name, value in tidy_options(run.options).items() if name not in PER_RUN_OPTIONS}
    digests = {name: run.summary.sources.get(str(run.options.get(name))) for name in READ_FOLDERS}
    for name, digest in digests.items():
        if digest and digest[:8] not in options.values():  # a folder of weights often has their tokenizer
            options[name] = digest[:8]
    return options


def _data_sources(run: RunRecord) -> Sources:
    """The user's own files of data, without weights and a tokenizer: these belong to a row, not to a table."""
    read = [run.options.get(name) for name in READ_FOLDERS]
    return {path: digest for path, digest in run.summary.sources.items() if path not in read}


def _common_options(found: Iterable[RunRecord]) -> dict[tuple[str, str], Any]:
    """The baseline of each option, by attention ('' for options outside the attention) and name.

    The baseline is the default if some run has it, else the most frequent value.
    """
    found = list(found)
    runs = [(run.attention, _result_options(run)) for run in found]
    named: dict[str, set[str]] = defaultdict(set)  # option names by attention, and under '' those outside it
    for attention, options in runs:
        for name in options:
            named[attention if name.startswith("attention.") else ""].add(name)
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    values: dict[str, Any] = {}
    for attention, options in runs:
        for place in ((of, name) for of in ("", attention) for name in named[of] if _has(options, name)):
            value = options.get(place[1], ABSENT)
            values[_format_value([value])] = value
            counts[place][_format_value([value])] += 1
    first = {run.attention: run for run in reversed(found)} | {"": found[0]}

    def baseline(place: tuple[str, str], count: Counter[str]) -> str:
        usual = count.most_common(1)[0][0]
        if len(count) == 1:
            return usual
        defaults = _default_options(first[place[0]])
        default = _format_value([defaults[place[1]]]) if place[1] in defaults else usual
        return default if default in count else usual

    return {place: values[baseline(place, count)] for place, count in counts.items()}


def _default_options(run: RunRecord) -> dict[str, Any]:
    """The options by path that a run's task, attention, recipe and scale have alone; {} if today's version lacks one.

    A summary may come from anywhere, so its names are only composed if they are options.
    """
    recipe = run.summary.recipe
    scale = None if run.scale == FULL_SCALE else run.scale
    chosen = {"recipe": recipe, "task": None if recipe else run.task, "attention": run.attention, "scale": scale}
    named = {group: name for group, name in chosen.items() if name is not None}
    if not all(name in option_names(group) for group, name in named.items()):
        return {}
    try:
        return tidy_options(preset_job(*(f"{group}={name}" for group, name in named.items())))
    except (HydraException, OmegaConfBaseException, LabError):
        return {}


def _own_options(attention: str, options: Options, usual: Mapping[tuple[str, str], Any]) -> Options:
    """The options in which a row differs from the baseline; attention options are compared within the attention."""
    places = {name: value for (of, name), value in usual.items() if of in ("", attention)}
    own = {name: options.get(name, ABSENT) for name in sorted(places) if _has(options, name)}
    return {name: value for name, value in own.items() if value != places[name]}


def _has(options: Options, name: str) -> bool:
    """Whether an option has a value, which may be ABSENT; one of an attention outside the own pattern has none."""
    return name in options or not name.startswith(OF_MEMBERS)


def _one_per_unit(runs: Iterable[RunRecord]) -> tuple[tuple[RunRecord, ...], tuple[RunRecord, ...]]:
    """The latest finished run of each seed and split, or else its latest run; and all other runs."""
    units: dict[Unit, list[RunRecord]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: (run.status == "ok", moment(run.summary.started), run.name)):
        units[run.unit].append(run)
    ordered = [units[unit] for unit in sorted(units, key=_format_value)]
    return tuple(same[-1] for same in ordered), tuple(run for same in ordered for run in same[:-1])


def _choose_metric(runs: Iterable[RunRecord], metric: str | None) -> str:
    """`metric`, or the metric that selected most epochs: on the test set if any run has it, else on validation."""
    if metric is not None:
        return metric
    runs = list(runs)
    monitored = Counter(run.monitored for run in runs if run.monitored)
    name = monitored.most_common(1)[0][0] if monitored else "accuracy"
    on_test = any(run.metric(f"test/{name}") is not None for run in runs)
    return f"test/{name}" if on_test or not monitored else f"val/{name}"


def _row_without(row: Row, by: Sequence[str]) -> tuple[str, Options]:
    apart = OF_MEMBERS if PATTERN in by else ()  # rows of other patterns have other members
    return row.attention, {n: value for n, value in row.options.items() if n not in by and not n.startswith(apart)}


def _num_different(row: Row, other: Row) -> int:
    """The number of options outside the attention in which two rows differ."""
    names = {name for name in {*row.options, *other.options} if not name.startswith("attention.")}
    return sum(row.options.get(name, ABSENT) != other.options.get(name, ABSENT) for name in names)


def _sort_key(value: Any, baseline: Any) -> tuple[bool, bool, float, str]:
    """Sorts the baseline value first, then numbers by size, then other values as strings."""
    is_number = isinstance(value, int | float)
    return (value != baseline, not is_number, float(value) if is_number else 0.0, str(value))


def format_option(value: Any) -> str:
    """An option's value for people, in the syntax of the command line; numbers have six digits at most."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value)


def _format_value(value: Mapping[str, Any] | Sequence[Any]) -> str:
    return json.dumps(value, sort_keys=True, default=str)
