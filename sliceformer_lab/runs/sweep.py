"""The plan of a sweep, written into its folder before the first job starts, and read by everyone afterwards."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sliceformer_lab.errors import RunFolderError
from sliceformer_lab.runs.files import write_json

SWEEP_FILE = "sweep.json"
FOLDER_NAME = re.compile(r"[^./\\][^/\\]*")
PLAIN_PATH = re.compile(r"[\w./-]+( [\w./-]+)*")  # one that Hydra reads without quotes
SELECTS_ROWS = ("recipe", "attention")  # on the command line of a study with rows, these keys select among them


@dataclass(frozen=True)
class PlannedJob:
    """One job of a sweep: the name of its run folder, and its words on the command line."""

    name: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class Sweep:
    """A folder with run folders, and what runs in them."""

    folder: Path
    jobs: tuple[PlannedJob, ...]
    flags: tuple[str, ...] = ()  # of the command line, for every job: --config-dir=FOLDER
    command: tuple[str, ...] = ()  # that planned it, without the program's name
    study: str | None = None
    data: Mapping[str, str] = field(default_factory=dict)  # the user's own: path -> digest, as in `runs.sources`
    facts: Mapping[str, Any] = field(default_factory=dict)  # commit and time

    def place(self, job: PlannedJob) -> Path:
        """The run folder of a job."""
        return self.folder / job.name


def write_sweep(sweep: Sweep) -> None:
    """Writes sweep.json and creates the folder."""
    sweep.folder.mkdir(parents=True, exist_ok=True)
    jobs = [{"name": job.name, "words": list(job.words)} for job in sweep.jobs]
    named = {"command": list(sweep.command), "flags": list(sweep.flags), "study": sweep.study, "data": dict(sweep.data)}
    write_json(sweep.folder / SWEEP_FILE, {**named, **sweep.facts, "jobs": jobs})


def read_sweep(folder: Path) -> Sweep:
    """The plan in a folder. Raises RunFolderError if there is none that can be read."""
    file = folder / SWEEP_FILE
    if not file.is_file():
        raise RunFolderError(f"{folder} is not the folder of a sweep: it has no {SWEEP_FILE}")
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        jobs = tuple(PlannedJob(str(job["name"]), tuple(map(str, job["words"]))) for job in content.pop("jobs"))
        command, flags = (tuple(map(str, content.pop(name))) for name in ("command", "flags"))
        study, data = content.pop("study"), {str(path): str(one) for path, one in content.pop("data", {}).items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunFolderError(f"{file} cannot be read as the plan of a sweep ({type(error).__name__})") from error
    if names := [job.name for job in jobs if not FOLDER_NAME.fullmatch(job.name) or not job.name.isprintable()]:
        raise RunFolderError(f"{file}: {names[0]!r} is not the name of a folder of a job")
    return Sweep(folder, jobs, flags, command, None if study is None else str(study), data, content)


def override_key(override: str) -> str:
    """The key of an override such as `+data.root=FOLDER`."""
    return override.lstrip("+~").partition("=")[0]


def resume_word(folder: Path) -> str:
    """resume=FOLDER as a word of a shell's command line."""
    is_plain = PLAIN_PATH.fullmatch(str(folder))
    return shlex.quote(f"resume={folder if is_plain else quote_path(folder)}")


def quote_path(path: Path | str) -> str:
    """A path as the value of an override."""
    text = str(path).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"
