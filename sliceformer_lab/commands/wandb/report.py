"""A report on Weights & Biases: our page of a sweep, an audit, a search or a map, with panels of its runs."""

from __future__ import annotations

import shlex
from pathlib import Path

import wandb_workspaces.reports.v2 as wr

from sliceformer_lab.commands.wandb.logged_runs import LoggedRuns
from sliceformer_lab.commands.wandb.workspace import ATTENTION, sections
from sliceformer_lab.errors import LabError
from sliceformer_lab.runs.sweep import SWEEP_FILE, read_sweep
from sliceformer_lab.training.results.wandb_names import sentence_of_sweep, varied_options

PAGES = {"audit.md": "audit", "tune.md": "tune", "map.md": "probe", "report.md": "comparison"}  # and their job types


def report(runs: LoggedRuns, entity: str, folder: str | None) -> wr.Report:
    """The report, which looks its project up on the server. Raises LabError for a folder without a page of ours."""
    if folder is None:
        raise LabError("wandb report: name the folder of a sweep, an audit, a search or a map")
    page = _find_page(Path(folder).expanduser().resolve())
    title, *parts = page.read_text(encoding="utf-8").split("\n\n")
    text = [part for part in parts if not part.startswith("![")]
    results = _build_runset("results", runs, entity, f"Metric('JobType') == '{PAGES[page.name]}'")
    by_attention = [
        _build_runset(name, runs, entity, f"Config('{ATTENTION}') == '{name}' and Metric('JobType') == 'train'")
        for name in runs.colours
    ]
    colours = {
        wr.RunsetGroup(runset_name=name, keys=(wr.RunsetGroupKey(wr.Config(ATTENTION), name),)): colour
        for name, colour in runs.colours.items()
    }
    blocks = [
        *_describe_methods(page),
        wr.MarkdownBlock("\n\n".join(text)),
    ]
    for name, panels in sections(runs).items():
        blocks += [
            wr.H2(name),
            wr.PanelGrid(runsets=[*by_attention, results], panels=panels, custom_run_colors=colours),
        ]
    return wr.Report(project=runs.project, entity=entity, title=title.lstrip("# ")[:128], blocks=blocks, width="fluid")


def _find_page(folder: Path) -> Path:
    """The page of a folder's results."""
    for name in PAGES:
        if (folder / "report" / name).is_file():
            return folder / "report" / name
    raise LabError(f"{folder} holds no page yet; write it with: report {shlex.quote(str(folder))}")


def _describe_methods(page: Path) -> list[wr.P | wr.CodeBlock]:
    """What a sweep compares, and its command; the pages of the other commands say that themselves."""
    sweep = page.parent.parent
    if not (sweep / SWEEP_FILE).is_file():
        return []
    command = shlex.join(["python", "-m", "sliceformer_lab", *read_sweep(sweep).command])
    return [wr.P(f"{sentence_of_sweep(varied_options(sweep))}."), wr.CodeBlock(command, language=None)]


def _build_runset(name: str, runs: LoggedRuns, entity: str, filters: str) -> wr.Runset:
    filters = f"Metric('Group') == '{runs.group}' and {filters}"
    return wr.Runset(entity=entity, project=runs.project, name=name, filters=filters, groupby=[f"config.{ATTENTION}"])
