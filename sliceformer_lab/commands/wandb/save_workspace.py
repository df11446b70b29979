"""Saves a workspace: checks that the server can be used, defines the workspace, saves it."""

from __future__ import annotations

import contextlib
import io
import logging
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from sliceformer_lab.commands.wandb.workspace_options import WorkspaceOptions
from sliceformer_lab.errors import ConfigError, LabError
from sliceformer_lab.runs.files import write_json
from sliceformer_lab.training.results.wandb_runs import has_key, server_answers, server_url

log = logging.getLogger(__name__)


def run(options: WorkspaceOptions, folder: Path) -> None:
    """Save the workspace on the server, and its address in `folder`/workspace.json. Raises LabError."""
    if find_spec("wandb_workspaces") is None:
        raise LabError("saved workspaces need wandb-workspaces: pip install 'sliceformer-lab[dashboard]'")
    server = server_url()
    if not has_key():
        raise LabError(f"there is no key for {server}: set WANDB_API_KEY, or run `wandb login` once")
    if not server_answers():
        raise LabError(f"{server} does not answer: workspaces live on the server and cannot be saved offline")
    import wandb

    from sliceformer_lab.commands.wandb.workspace import definition

    try:
        entity = options.entity or wandb.Api().default_entity
        if entity is None:
            raise ConfigError("entity: the key has no default entity; name one with entity=TEAM")
        workspace = definition(options, entity)
        with contextlib.redirect_stderr(io.StringIO()):  # W&B prints the address there
            workspace.save()
    except LabError:
        raise
    except Exception as error:  # the client raises errors of several HTTP libraries
        place = f"{options.entity or 'the default entity'}/{options.project}"
        raise LabError(
            f"W&B would not save the workspace in {place} ({' '.join(str(error).split())}); "
            "the project must exist and the key must have write access"
        ) from error
    write_json(folder / "workspace.json", {"url": workspace.url, **asdict(options), "entity": entity})
    log.info(f"saved: {workspace.url}")
