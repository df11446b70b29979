"""Runs an analysis: opens the runs, measures, writes the files, prints a summary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sliceformer_lab.commands.inspect.base import Analysis, Findings
from sliceformer_lab.commands.inspect.inspect_options import InspectOptions
from sliceformer_lab.commands.inspect.models import Source, Study, open_study
from sliceformer_lab.config.schema import build_object
from sliceformer_lab.errors import LabError
from sliceformer_lab.measures.drawing import write_charts
from sliceformer_lab.runs.commit import git_commit
from sliceformer_lab.runs.files import write_json
from sliceformer_lab.runs.folder import read_summary
from sliceformer_lab.runs.plain_text import PlainConsole, counted, csv_cell
from sliceformer_lab.runs.printed_table import print_table


def run_analysis(name: str, node: Mapping[str, Any], options: InspectOptions, folder: Path) -> None:
    """Run an analysis and write NAME.csv, NAME.json and its figures into `folder`. Raises LabError."""
    analysis: Analysis = build_object(node, where="analysis")
    study = open_study(options)
    models = counted(sum(len(group.sources) for group in study.groups), "model")
    console = PlainConsole()
    about = f"{name}: {models} in {', '.join(options.folders)}, with the weights of {' and '.join(options.checkpoints)}"
    console.print(about)
    findings = analysis.findings(study)
    if findings.table.empty:
        raise LabError(f"none of the runs in {', '.join(options.folders)} could be opened: {_list_reasons(study)}")
    content = {"analysis": name, "options": dict(node), **asdict(options), **_describe_provenance(study)}
    files = write_findings(findings, name, content, folder)
    for table in findings.summary:
        print_table(table, num_names=2)
    for group in study.groups:
        if group.note:
            console.print(f"note: {group.title}: {group.note}")
    for run_name, reason in study.left_out.items():
        console.print(f"left out: {run_name}: {reason}")
    for file in files:
        console.print(str(file))


def write_findings(findings: Findings, name: str, content: Mapping[str, Any], folder: Path) -> list[Path]:
    """Writes NAME.csv, NAME.json with `content`, and each chart as PNG and PDF into `folder`; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{name}.csv", folder / f"{name}.json"]
    findings.table.map(csv_cell).to_csv(files[0], index=False)
    write_json(files[1], {**content, **findings.facts})
    return files + write_charts(findings.charts, folder)


def _list_reasons(study: Study) -> str:
    """Each reason once, with the first run or control that it left out and the number of others."""
    names: dict[str, list[str]] = {}
    for name, reason in study.left_out.items():
        names.setdefault(reason, []).append(name)
    return "; ".join(
        f"{first}{f' and {len(others)} more' if others else ''}: {reason}" for reason, (first, *others) in names.items()
    )


def _describe_provenance(study: Study) -> dict[str, Any]:
    """The runs, data and code that an analysis was made from."""
    groups = [
        {
            "title": group.title,
            "split": group.stage,
            "split_seed": group.split_seed,
            "note": group.note,
            "data": group.fingerprint,
            "models": [_describe_model(source) for source in group.sources if source.name not in study.left_out],
        }
        for group in study.groups
    ]
    return {"git_commit": git_commit(), "groups": groups, "left_out": study.left_out}


def _describe_model(source: Source) -> dict[str, Any]:
    model = {"attention": source.label, "seed": source.plan.seed}
    if source.folder is None:
        return model | {"untrained": True}
    return model | {"folder": str(source.folder), "git_commit": read_summary(source.folder).git_commit}
