"""The command line: composes the configuration with Hydra, tells mistakes in one sentence, runs one job or many.

Imports nothing heavy: torch is loaded by the job, after the configuration stood.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from sliceformer_lab import overview
from sliceformer_lab.compose import CONF_DIR
from sliceformer_lab.config import ConfigError, allow_targets
from sliceformer_lab.errors import InterruptedRunError, LabError
from sliceformer_lab.explain import explain
from sliceformer_lab.jobs import Job, Jobs
from sliceformer_lab.record import CONFIG
from sliceformer_lab.resume import resumed_config

log = logging.getLogger(__name__)
jobs = Jobs()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; `argv` without the program's name."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if {"-h", "--help"} & set(arguments):
        print(overview.help_text())  # noqa: T201
        return 0
    before = sys.argv
    sys.argv = [before[0], *arguments]
    jobs.clear()
    try:
        _check_packages()
        _register_resolvers()
        os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises instead of printing five lines and exiting
        hydra.main(config_path=str(CONF_DIR), config_name="config", version_base="1.3")(_job)()
        return jobs.report() if jobs.many else 0
    except (HydraException, OmegaConfBaseException) as error:
        return _tell(explain(error, arguments), 1)
    except LabError as error:
        return _tell(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _tell("stopped", 130)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    finally:
        sys.argv = before


def _job(cfg: DictConfig) -> float | None:
    """One job; in a multirun a failure is recorded and the others go on."""
    context = HydraConfig.get()
    many = context.mode == RunMode.MULTIRUN
    folder = Path(context.runtime.output_dir)
    try:
        value = _run(cfg, folder)
        jobs.add(Job(folder, "ok", value), many)
        return value
    except InterruptedRunError as error:
        if many:
            jobs.add(Job(folder, "interrupted", None, str(error)), many)
            jobs.report()
            raise SystemExit(error.exit_code) from error  # Hydra would go on with the next job
        raise
    except (Exception, SystemExit) as error:
        if not isinstance(error, LabError):
            log.error(traceback.format_exc())
        if not many:
            raise
        jobs.add(Job(folder, getattr(error, "status", "failed"), None, f"{error}"), many)
        log.error(f"this job failed: {error}")
        return None


def _run(cfg: DictConfig, folder: Path) -> float | None:
    overrides = list(HydraConfig.get().overrides.task)
    config = _plain(cfg)
    child = int(os.environ.get("LOCAL_RANK", "0")) > 0  # of a distributed run; reads what its parent saved
    if config["allow_targets"] and (child or any(o.startswith("allow_targets=") for o in overrides)):
        allow_targets(config["allow_targets"])
    if config["mode"] == "eval" and not config["resume"]:
        raise ConfigError("mode=eval scores a finished run again: say which with resume=FOLDER")
    if config["resume"] and not child:
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            raise ConfigError("resume names one run folder and cannot be part of a multirun")
        config = resumed_config(config, overrides)
    if not child:
        # Lightning starts the other processes of a distributed run from this file
        OmegaConf.save(OmegaConf.create(config), folder / ".hydra" / CONFIG)
    from sliceformer_lab.run import run

    return run(config, folder)


def _plain(cfg: DictConfig) -> dict[str, Any]:
    """The resolved configuration; paths made absolute, so that it means the same from any folder."""
    for key in ("data", "outputs"):
        cfg.paths[key] = str(Path(cfg.paths[key]).expanduser().resolve())
    resolved = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    return {str(key): value for key, value in resolved.items()} if isinstance(resolved, dict) else {}


def _register_resolvers() -> None:
    started = datetime.now

    def digest(options: str) -> str:
        return hashlib.sha256(options.encode()).hexdigest()[:6]

    def run_folder(resume: str | None, otherwise: str) -> str:
        if resume is not None and not (Path(resume) / CONFIG).is_file():
            raise ConfigError(f"resume={resume} is not a run folder: it has no {CONFIG}")
        return resume or otherwise

    OmegaConf.register_new_resolver("digest", digest, replace=True)
    OmegaConf.register_new_resolver("run_folder", run_folder, replace=True)
    OmegaConf.register_new_resolver(
        "stamp", lambda options: f"{started():%Y-%m-%d_%H-%M-%S-%f}-{digest(options)}", replace=True, use_cache=True
    )


def _check_packages() -> None:
    """Raises ConfigError if a file or folder of the current directory hides one of our packages."""
    for name in ("conf", "tasks", "callbacks"):
        found = importlib.util.find_spec(name)
        origin = Path(found.origin).resolve().parent.parent if found and found.origin else None
        if origin != CONF_DIR.resolve().parent:
            raise ConfigError(
                f"{found.origin if found else name} hides the package {name} of sliceformer_lab; "
                "rename it or start from another folder"
            )


def _tell(sentence: str, code: int) -> int:
    print(f"sliceformer-lab: {sentence}", file=sys.stderr)  # noqa: T201
    return code
