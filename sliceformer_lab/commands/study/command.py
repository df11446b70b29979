"""The command line of a study: run its jobs, or its benchmark, then report on the folder that they are in."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from omegaconf import DictConfig

from sliceformer_lab.__main__ import main
from sliceformer_lab.cli.help import explained, page
from sliceformer_lab.cli.plan import BENCHMARKS, SKIPPED, study_names, study_rows
from sliceformer_lab.commands.benchmark.command import BENCHMARK
from sliceformer_lab.commands.report.command import REPORT
from sliceformer_lab.config.compose import no_such_option, option_names, written_option
from sliceformer_lab.errors import ConfigError

SMALL_BENCHMARK = {  # sizes that a laptop measures in minutes
    "lra_speed": ("sizes=[1000]", "batch=1", "rounds=3"),
    "samsa_speed": ("sizes=[1024]", "batch=1", "rounds=3"),
}
STOPPED = 128  # exit codes above it are those of signals


def main(argv: Sequence[str] | None = None) -> int:
    """Run a study and report on it, also where jobs of it failed; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if {"-h", "--help"} & set(words):
        print(help_text())  # noqa: T201
        return 0
    try:
        name, scale, rest = _read(words)
        if name in BENCHMARKS:
            return _measure(BENCHMARKS[name], scale, rest)
        return _run([f"study={name}", f"scale={scale}", *rest])
    except ConfigError as error:
        print(f"sliceformer-lab: {error}", file=sys.stderr)  # noqa: T201
        return 1


def help_text() -> str:
    """What a study is, and every one with a line."""
    studies = explained("study") | {name: f"the benchmark suite={suite}" for name, suite in BENCHMARKS.items()}
    said = (
        "Run a study and report on it.\n"
        "scale=small makes minutes of each run, only=WORD keeps the rows with this word in them.\n"
        f"Of a stopped study, {SKIPPED.format(folder='FOLDER')}."
    )
    sections = {"Studies": dict(sorted(studies.items())), "Scales (scale=)": explained("scale")}
    return page(said, "python -m sliceformer_lab study NAME [scale=small] [only=WORD] [KEY=VALUE ...]", sections)


def _read(words: Sequence[str]) -> tuple[str, str, list[str]]:
    """Name and scale of the study, and the other words. Raises ConfigError."""
    ours: dict[str, str] = {"scale": "full"}
    rest = []
    for word in words:
        key, equals, value = word.partition("=")
        if not equals and not word.startswith("-") and "study" not in ours:
            ours["study"] = word
        elif equals and key in ("study", "scale", "only"):
            ours[key] = value
        else:
            rest.append(word)
    name, scale = ours.get("study", ""), ours["scale"]
    if not name:
        raise ConfigError(f"name a study: make study STUDY=NAME; there are {', '.join(study_names())}")
    if name not in study_names():
        raise ConfigError(no_such_option("study", name, study_names()))
    if scale not in option_names("scale"):
        raise ConfigError(no_such_option("scale", scale, option_names("scale")))
    return name, scale, [*(_kept(name, ours["only"]) if ours.get("only") else []), *rest]


def _kept(name: str, word: str) -> list[str]:
    """The override that leaves only the rows with `word` in them. Raises ConfigError if none is left."""
    rows = rows_of_study(name)
    if not any(word in row for row in rows):
        among = f"the {len(rows)} rows of study {name}" if rows else f"study {name}"
        raise ConfigError(f"only={word}: {among} have none with this word; conf/study/{name}.yaml lists what it runs")
    return [f"hydra.callbacks.plan.only={word}"]


def rows_of_study(name: str) -> list[str]:
    """The jobs that a study lists one by one, as words of a command; none of a study that measures."""
    if name in BENCHMARKS:
        return []
    plan = written_option("study", name)["hydra"].get("callbacks", {}).get("plan", {})
    return study_rows(plan.get("rows"), plan.get("recipes"))


def _measure(suite: str, scale: str, rest: Sequence[str]) -> int:
    small = SMALL_BENCHMARK[suite] if scale == "small" else ()
    return cli.main([f"suite={suite}", *small, *rest], BENCHMARK)


def _run(words: Sequence[str]) -> int:
    """Train, then report on the sweep's folder unless a signal stopped it."""
    places: dict[Path, None] = {}

    def job(cfg: DictConfig, folder: Path) -> float | None:
        places[folder.parent] = None
        return cli.TRAINING.job(cfg, folder)

    code = cli.main(words, replace(cli.TRAINING, job=job))
    for place in places if code < STOPPED else ():
        code = max(code, cli.main([str(place)], REPORT))
    return code
