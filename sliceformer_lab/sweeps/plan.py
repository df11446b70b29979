"""From the words of a command line to the jobs of a sweep: products, zipped options, rows of a study, jobs left out."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import OmegaConf

from sliceformer_lab.config.compose import compose_root
from sliceformer_lab.config.explain import explain, parse_word
from sliceformer_lab.config.hydra_node import check_hydra_node, check_hydra_words
from sliceformer_lab.config.plain_checks import own_paths
from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.config.sweep_size import alternatives, check_sweep_size, values_of
from sliceformer_lab.runs.names import short_digest, task_folder
from sliceformer_lab.runs.papers import recipe_rows
from sliceformer_lab.runs.plain_text import is_number
from sliceformer_lab.runs.resume import may_change
from sliceformer_lab.runs.sources import (
    Sources,
    data_words,
    digests_of,
    named_targets,
    sources_of_options,
    sources_of_words,
)
from sliceformer_lab.runs.sweep import SELECTS_ROWS, PlannedJob, override_key

ZIP, SKIP = "zip(", "skip("  # begin words of the command line that are no overrides
ROOT_KEYS = ("study", "launcher", "hydra", "sweep", "paths", "scale")  # keys that say where and how a sweep runs
COMMAND_LINE_ONLY = ("allow_targets", "hydra", "launcher", "sweep")  # a file of options could let in code with them
SWEEP_KEYS = ("launcher", "sweep", "hydra.sweep")


@dataclass(frozen=True)
class SweepPlan:
    """What a command line asks for: jobs in a folder, and the launcher that runs them."""

    folder: Path
    jobs: tuple[PlannedJob, ...]
    skipped: Mapping[str, int]  # rule -> number of jobs it leaves out
    launcher: dict[str, Any]  # its node
    study: str | None
    scale: str
    outputs: Path
    data: Sources  # the user's own, with options and code
    modules: tuple[str, ...]  # of our package, that the jobs' nodes name


def is_sweep(words: Sequence[str], multirun: bool) -> bool:
    """Whether a command line asks for more than one run in this process; quick, for every start."""
    keys = [override_key(word) for word in words]
    return multirun or any(word.startswith((ZIP, SKIP)) for word in words) or bool({"study", "launcher"} & {*keys})


def plan_sweep(words: Sequence[str], multirun: bool) -> SweepPlan | None:
    """The sweep that the words ask for; None if it is a single run after all. Raises ConfigError."""
    zips, skips = _split_words(words, ZIP), _split_words(words, SKIP)
    words = [word for word in words if not word.startswith((ZIP, SKIP))]
    check_hydra_words(words)
    parsed = [parse_word(word) for word in words]
    of_root = [word for word in words if override_key(word).split(".")[0].split("/")[0] in ROOT_KEYS]
    root = _compose_words(of_root)
    choices, node = root["hydra"]["runtime"]["choices"], _sweep_node(root)
    is_run = root["hydra"]["mode"] != RunMode.MULTIRUN and choices["launcher"] == "serial" and not zips + skips
    if is_run and not multirun:
        return None
    of_jobs = [o for o in parsed if not _is_of_sweep(str(o.input_line))]
    rows, swept = _choose_rows(node, of_jobs), root["hydra"]["sweeper"].get("params") or {}
    of_files = [*swept, *itertools.chain(*(rows or ())), *itertools.chain(*map(_comma_separated, node["zip"]))]
    if foreign := [word for word in of_files if override_key(word).split(".")[0].split("/")[0] in COMMAND_LINE_ONLY]:
        raise ConfigError(f"a study cannot sweep {override_key(foreign[0])}, which belongs on the command line")
    if any(override_key(word) in ("resume", "mode") for word in words):
        raise ConfigError("resume and mode belong to one run; the same command continues a sweep, without them")
    products = _combine_words(of_jobs, swept, rows, [*node["zip"], *zips])
    kept, skipped = _without_skipped(products, [*node["skip"], *skips])
    shapes = _Shapes()
    jobs = tuple(PlannedJob(shapes.folder_name(number, words), words) for number, words in enumerate(kept))
    folder, outputs = _choose_folder(words, root, jobs, shapes.data)
    launcher = {key: value for key, value in root["launcher"].items() if value is not None}
    modules = tuple(sorted(shapes.modules))
    study, scale = choices["study"], choices["scale"]
    return SweepPlan(folder, jobs, skipped, launcher, study, scale, outputs, shapes.data, modules)


def study_rows(rows: Sequence[str] | None, recipes: Sequence[str] | None) -> list[str]:
    """The rows that a study lists, and one for each command of its recipes that repeats a printed cell."""
    of_recipes = [f"recipe={recipe} {words}" for recipe in recipes or () for words in recipe_rows(recipe)]
    return [*of_recipes, *(rows or ())]


def _split_words(words: Sequence[str], kind: str) -> list[str]:
    """What is in the brackets of the words of a kind, zip( or skip(. Raises ConfigError for an open bracket."""
    found = [word for word in words if word.startswith(kind)]
    if still_open := [word for word in found if not word.endswith(")")]:
        raise ConfigError(f"{still_open[0]}: the bracket is not closed; quote the whole word: '{kind}...)'")
    return [word[len(kind) : -1] for word in found]


def _compose_words(words: Sequence[str]) -> dict[str, Any]:
    """The composed configuration. Raises ConfigError."""
    try:
        root = compose_root(words)
    except (HydraException, ValueError) as error:  # ValueError: a group without a choice, such as study=null
        raise ConfigError(explain(error, words)) from error
    check_hydra_node(root["hydra"])
    return root


def _is_of_sweep(word: str) -> bool:
    key = override_key(word)
    return any(key == name or key.startswith(f"{name}.") for name in SWEEP_KEYS)


def _sweep_node(root: Mapping[str, Any]) -> dict[str, Any]:
    """The node `sweep`. Raises ConfigError if it is no mapping of lists of text."""
    node = root["sweep"]
    if not isinstance(node, dict) or set(node) != {"rows", "recipes", "zip", "skip"}:
        raise ConfigError("sweep: should have rows, recipes, zip and skip, each a list of text")
    for name, value in node.items():
        is_text = isinstance(value, list) and all(isinstance(item, str) for item in value)
        if not is_text and not (value is None and name in ("rows", "recipes")):
            raise ConfigError(f"sweep.{name}: should be a list of text")
    return node


def _choose_rows(node: Mapping[str, Any], given: Sequence[Override]) -> list[list[str]] | None:
    """The rows of a study that have one of the recipes and attentions of the command line; None without rows.

    Raises ConfigError if no row is left.
    """
    if node["rows"] is None and node["recipes"] is None:
        return None
    wanted = {o.key_or_group: set(values_of(o)) for o in given if o.key_or_group in SELECTS_ROWS}
    kept = []
    for row in study_rows(node["rows"], node["recipes"]):
        values = dict(word.split("=", 1) for word in row.split())
        if all(values.get(key) in names for key, names in wanted.items()):
            kept.append(row.split())
    if not kept:
        raise ConfigError("the study has no row with this recipe and attention; its file in conf/study lists them")
    return kept


def _combine_words(
    given: Sequence[Override], swept: Mapping[str, Any], rows: list[list[str]] | None, zips: Sequence[str]
) -> list[tuple[str, ...]]:
    """The words of each job: rows x zipped options x all combinations; the last word varies fastest.

    The command line replaces keys that a study sweeps.
    """
    keys = {override.key_or_group for override in given}
    in_rows = {override_key(word) for row in rows or () for word in row}
    factors = [_parse_zip(content) for content in zips]
    in_zips = {override_key(word) for factor in factors for words in factor for word in words}
    if twice := sorted(in_zips & (keys | in_rows)):
        raise ConfigError(f"{twice[0]}: given inside and outside zip(...); leave one out")
    if rows is not None:
        factors.insert(0, rows)
        keys -= set(SELECTS_ROWS)
        given = [override for override in given if override.key_or_group not in SELECTS_ROWS]
    of_study = [parse_word(f"{key}={value}") for key, value in swept.items() if key not in keys | in_zips | in_rows]
    check_sweep_size([*of_study, *given], math.prod(map(len, factors)))
    factors += [[[word] for word in alternatives(override)] for override in [*of_study, *given]]
    jobs = [tuple(word for words in job for word in words) for job in itertools.product(*factors)]
    first: dict[object, tuple[str, ...]] = {}  # job by what its words mean
    for job in jobs:
        if (other := first.setdefault(tuple(map(_meaning, job)), job)) is not job:
            same = dict.fromkeys((" ".join(other), " ".join(job)))
            raise ConfigError(f"two jobs are the same: {' and '.join(same)}; leave one out")
    return jobs


def _meaning(word: str) -> tuple[str, object]:
    """The key and the value of a word; 0 and 0.0 are one value, but a limit of 1 is a batch, and 1.0 all batches."""
    key, _, value = word.partition("=")
    return key, float(value) if is_number(value) and not key.startswith("trainer.limit_") else value


def _parse_zip(content: str) -> list[list[str]]:
    """The words of each position of `KEY=[a,b], KEY=[c,d]`. Raises ConfigError unless all lists have one length."""
    columns = []
    for word in _comma_separated(content):
        key, _, values = word.partition("=")
        if not (values.startswith("[") and values.endswith("]") and values[1:-1].strip()):
            raise ConfigError(f"zip({content}): {word} should be KEY=[VALUE,VALUE]")
        columns.append(alternatives(parse_word(f"{key}={values[1:-1]}")))
    if len({len(column) for column in columns}) != 1:
        sizes = " and ".join(str(len(column)) for column in columns)
        raise ConfigError(f"zip({content}): lists of {sizes} values; give lists of one length")
    return [list(words) for words in zip(*columns, strict=True)]


def _without_skipped(
    jobs: Sequence[tuple[str, ...]], rules: Sequence[str]
) -> tuple[list[tuple[str, ...]], dict[str, int]]:
    """The jobs that no rule leaves out, and how many each rule leaves out. Raises ConfigError if none is left.

    A rule is `KEY=VALUE, KEY=[VALUE,VALUE]`: a job with one of the values at every key is left out.
    """
    wanted = {}
    for rule in rules:
        parsed = [parse_word(word) for word in _comma_separated(rule)]
        values = {o.key_or_group: o.value() for o in parsed if not o.is_sweep_override()}
        if len(values) < len(parsed) or not parsed:
            raise ConfigError(f"skip({rule}): should be KEY=VALUE or KEY=[VALUE,VALUE], separated by commas")
        wanted[rule] = {
            key: {str(v) for v in (value if isinstance(value, list) else [value])} for key, value in values.items()
        }
    kept, skipped = [], Counter(dict.fromkeys(wanted, 0))
    for words in jobs:
        own = {o.key_or_group: str(o.value()) for o in map(parse_word, words)}
        meant = [rule for rule, keys in wanted.items() if all(own.get(key) in keys[key] for key in keys)]
        if meant:
            skipped[meant[0]] += 1
        else:
            kept.append(words)
    if not kept:
        raise ConfigError(f"skip leaves no job: {', '.join(f'skip({rule})' for rule in rules)}")
    for rule, number in skipped.items():
        if not number:
            raise ConfigError(f"skip({rule}): no job of this sweep has these options; look at the keys and values")
    return kept, dict(skipped)


def _comma_separated(content: str) -> list[str]:
    """The parts of a text between its commas, apart from those in brackets."""
    parts, depth = [""], 0
    for letter in content:
        depth += (letter in "[({") - (letter in "])}")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


class _Shapes:
    """Composes jobs, to name their folders and to find faults before the start.

    Jobs that differ only in numbers have one shape, which is composed once.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], str] = {}
        self._read: set[tuple[str, ...]] = set()  # words of data that `data` has
        self.modules: set[str] = set()
        self.data: dict[str, str] = {}

    def folder_name(self, number: int, words: tuple[str, ...]) -> str:
        """NUMBER-TASK-ATTENTION-DIGEST. Raises ConfigError for words that cannot be composed."""
        shape = tuple(override_key(word) if is_number(word.partition("=")[2]) else word for word in words)
        if shape not in self._known:
            root = _compose_words(words)
            choices, data = root["hydra"]["runtime"]["choices"], root.get("data") or {}
            named = {key: value for key, value in data.items() if key in ("name", "file", "root") and value != "???"}
            task = task_folder(choices["task"], named if "name" in data else {})
            self._known[shape] = f"{task}-{choices['attention']}"
            self.modules |= set(named_modules(root))
            self.data |= sources_of_options(words, root)
            if own_paths(root) and (of_data := data_words(words)) not in self._read:
                self._read.add(of_data)
                self.data |= sources_of_words(of_data)
        return f"{number}-{self._known[shape]}-{short_digest(' '.join(word for word in words if not may_change(word)))}"


def named_modules(node: Any) -> Iterator[str]:
    """The modules of our package that the nodes of a configuration name."""
    for target in named_targets(node):
        if target.startswith("sliceformer_lab."):
            yield target.rpartition(".")[0]


def _choose_folder(
    words: Sequence[str], root: dict[str, Any], jobs: Sequence[PlannedJob], data: Sources
) -> tuple[Path, Path]:
    """The folder of the sweep, and the folder of all outputs.

    hydra.sweep.dir if it is given, else OUTPUTS/sweeps/STUDY-DIGEST, so that the same command finds its folder again;
    with other data it has another one.
    """
    paths = {key: value for key, value in root["paths"].items() if key != "data"}
    config: Any = OmegaConf.create({"paths": paths, "hydra": {"runtime": root["hydra"]["runtime"]}})
    outputs = Path(str(config.paths.outputs)).expanduser().resolve()
    if any(override_key(word) == "hydra.sweep.dir" for word in words):
        return Path(str(root["hydra"]["sweep"]["dir"])).expanduser().resolve(), outputs
    text = "\n".join([*(" ".join(job.words) for job in jobs), *digests_of(data)])
    study = root["hydra"]["runtime"]["choices"]["study"]
    return outputs / "sweeps" / f"{study or 'sweep'}-{hashlib.sha256(text.encode()).hexdigest()[:10]}", outputs
