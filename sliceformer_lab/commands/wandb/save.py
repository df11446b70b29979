"""Saves a workspace or a report: checks that the server can be used, defines the view, saves it."""

from __future__ import annotations

import contextlib
import io
import logging
from dataclasses import asdict, replace
from pathlib import Path

from sliceformer_lab.commands.wandb.logged_runs import logged_runs
from sliceformer_lab.commands.wandb.wandb_options import WandbOptions
from sliceformer_lab.errors import ConfigError, LabError, check_extra
from sliceformer_lab.runs.files import write_json
from sliceformer_lab.training.results.wandb_runs import has_key, server_answers, server_url

log = logging.getLogger(__name__)


def save_on_server(options: WandbOptions, folder: Path) -> None:
    """Save the workspace or report on the server, and its address in `folder`/ACTION.json. Raises LabError."""
    what = options.action
    check_extra(f"a {what}", "dashboard", "wandb_workspaces")
    server = server_url()
    if not has_key():
        raise LabError(f"there is no key for {server}: set WANDB_API_KEY, or run `wandb login` once")
    if not server_answers():
        raise LabError(f"{server} does not answer: a {what} lives on the server and cannot be saved offline")
    import wandb

    from sliceformer_lab.commands.wandb.report import report
    from sliceformer_lab.commands.wandb.workspace import workspace

    runs = logged_runs(options)
    try:
        entity = runs.entity or wandb.Api().default_entity
        if entity is None:
            raise ConfigError("entity: the key has no default entity; name one with entity=TEAM")
        runs = replace(runs, entity=entity)
        with contextlib.redirect_stderr(io.StringIO()):  # W&B prints the address there
            view = workspace(runs, entity) if what == "workspace" else report(runs, entity, options.folder)
            view.save()
    except LabError:
        raise
    except Exception as error:  # the client raises errors of several HTTP libraries
        raise LabError(
            f"W&B would not save the {what} in {runs.entity or 'the default entity'}/{runs.project} "
            f"({' '.join(str(error).split())}); the project must exist and the key must have write access"
        ) from error
    write_json(folder / f"{what}.json", {"url": view.url, **asdict(runs)})
    log.info(f"saved: {view.url}")
