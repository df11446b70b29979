"""A submission: what contract, growth and probes say about one attention, as one line that can be repeated."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sliceformer_lab.attention.contract import CHECKS, rule_of
from sliceformer_lab.commands.benchmark.benchmark_options import BenchmarkOptions
from sliceformer_lab.commands.benchmark.machine import machine
from sliceformer_lab.commands.benchmark.run_suite import run_benchmark
from sliceformer_lab.commands.check.run_checks import check_contract
from sliceformer_lab.commands.compare.declaration import source_digests
from sliceformer_lab.commands.compare.steps import REPORT, RUNS
from sliceformer_lab.commands.map.map_options import MapOptions
from sliceformer_lab.commands.map.map_runs import run_map
from sliceformer_lab.commands.submit.submit_options import SubmitOptions
from sliceformer_lab.config.compose import load_option
from sliceformer_lab.config.schema import allowed_too
from sliceformer_lab.errors import LabError
from sliceformer_lab.runs.commit import git_commit
from sliceformer_lab.runs.files import digest_of_json, write_text
from sliceformer_lab.runs.folder import read_summary
from sliceformer_lab.sweeps.queue import Launcher

FORMAT, LINE = 1, "submission.jsonl"
ROUNDS = 3  # of the measurement of time
MAX_SCORE_GAP, MAX_EXPONENT_GAP = 0.02, 0.3  # between two machines

Line = dict[str, Any]


def submit(options: SubmitOptions, launcher: Launcher) -> Line:
    """Check, time and map an attention, and write its line into the folder. Raises LabError if it breaks a rule."""
    folder, name = Path(options.folder).expanduser().resolve(), options.subject
    node = load_option("attention", name)
    check_contract(name, node)
    sizes = BenchmarkOptions(attentions=(name,), sizes=options.sizes, rounds=ROUNDS, batch=1)
    facts = machine(sizes)  # its load before the measurement, not that of the runs
    timed = [row for row in run_benchmark(sizes, folder / "growth") if (row.method, row.mode) == (name, "training")]
    seconds = {str(row.tokens): row.seconds for row in timed}
    trusted = [f"allow_targets=[{','.join(allowed_too())}]"] if allowed_too() else []  # each run asks for itself
    asked = MapOptions(
        folder=str(folder / "map"),
        attentions=(name,),
        probes=options.probes,
        seeds=options.seeds,
        words=(f"data.level={options.level}", *trusted),
    )
    run_map(asked, launcher)
    cells = map(json.loads, (folder / "map" / REPORT / "map.jsonl").read_text("utf-8").splitlines())
    line = {
        "format": FORMAT,
        "options": {key: value for key, value in asdict(options).items() if key != "folder"},
        "node": node,
        "sources": source_digests(node),
        "rules": [rule_of(check) for check in CHECKS],  # all of them kept
        "growth": {"seconds": seconds, "exponent": _fit_exponent(seconds), "machine": facts},
        "probes": {cell["probe"]: _summarise_cell(cell) for cell in cells},
        "data": _test_digests(folder / "map" / RUNS),
        "commit": git_commit(),
    }
    line["digest"] = digest_line(line)
    write_text(folder / LINE, json.dumps(line, sort_keys=True, allow_nan=False) + "\n")
    return line


def digest_line(line: Mapping[str, Any]) -> str:
    """Of all that is in a line, without the digest itself: a line that was edited has another one."""
    return digest_of_json({key: value for key, value in line.items() if key != "digest"})


def differences(line: Mapping[str, Any], again: Mapping[str, Any]) -> list[tuple[str, str, str, bool]]:
    """What a line and its repetition say: subject, both values, and whether they agree.

    Sources, data, rules and options must be equal; scores and the exponent of time may differ as two machines do.
    """
    found = [
        (subject, *(digest_of_json(one[subject])[:12] for one in (line, again)), line[subject] == again[subject])
        for subject in ("node", "sources", "rules", "data")
    ]
    numbers = [
        *(
            (probe, cell["score"], again["probes"][probe]["score"], MAX_SCORE_GAP)
            for probe, cell in line["probes"].items()
        ),
        ("exponent of time", line["growth"]["exponent"], again["growth"]["exponent"], MAX_EXPONENT_GAP),
    ]
    return [
        *found,
        *((subject, _format_number(a), _format_number(b), _are_close(a, b, gap)) for subject, a, b, gap in numbers),
    ]


def read_line(file: Path) -> Line:
    """The last line of a file. Raises LabError for one that `submit` did not write, or that was edited."""
    try:
        line: Line = json.loads(file.read_text(encoding="utf-8").splitlines()[-1])
        is_sound = line["format"] == FORMAT and digest_line(line) == line["digest"]
    except OSError as error:
        raise LabError(f"{file} cannot be read ({error.strerror}); give the file that `submit` wrote") from error
    except (ValueError, LookupError, TypeError) as error:
        raise LabError(f"{file}: its last line is none that `submit` wrote") from error
    if not is_sound:
        raise LabError(f"{file}: the last line does not fit its digest: it was edited, or another version wrote it")
    return line


def _test_digests(runs: Path) -> list[str]:
    """The digests of the test splits that the runs were scored on."""
    summaries = [read_summary(file.parent) for file in runs.glob("*/summary.json")]
    return sorted({one.digests["test"] for one in summaries if one.digests.get("test")})


def _summarise_cell(cell: Mapping[str, Any]) -> Line:
    """What a line keeps of a cell; of the single scores, one that diverged is None, and counts as chance in `score`."""
    scores = [run["value"] for run in cell["reporting"]]
    return {key: cell[key] for key in ("reason", "rate", "score", "steps", "chance", "bag_level")} | {"scores": scores}


def _fit_exponent(seconds: Mapping[str, float | None]) -> float | None:
    """p of N^p between the two longest sizes that ran."""
    known = sorted((int(tokens), value) for tokens, value in seconds.items() if value)[-2:]
    if len(known) < 2:
        return None
    (few, short), (many, long) = known
    return math.log(long / short) / math.log(many / few)


def _are_close(one: float | None, other: float | None, most: float) -> bool:
    return one == other if one is None or other is None else abs(one - other) <= most


def _format_number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"
