"""A W&B server for tests, on this machine and in memory: it keeps what the client sends, and can fail on request."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import quote, unquote

import pytest
import yaml
from support.bad_server import served_by

from sliceformer_lab.training.results.wandb_runs import sync_command

KEY = "0123456789abcdef0123456789abcdef01234567"
ENTITY = "me"

Values = dict[str, Any]


@dataclass
class StoredRun:
    """A run as the server knows it."""

    id: str
    project: str
    facts: Values = field(default_factory=dict)  # displayName, groupName, jobType, tags, notes, ...
    config: Values = field(default_factory=dict)
    summary: Values = field(default_factory=dict)
    lines: dict[str, dict[int, str]] = field(default_factory=dict)  # of the history and so on, by their place
    files: dict[str, bytes] = field(default_factory=dict)
    exit_code: int | None = None
    starts: int = 0

    @property
    def history(self) -> list[Values]:
        """The rows of the history in order."""
        lines = self.lines.get("wandb-history.jsonl", {})
        return [json.loads(lines[place]) for place in sorted(lines)]

    @property
    def logged(self) -> set[str]:
        """Every key of the history."""
        return {key for row in self.history for key in row}

    @property
    def charts(self) -> Values:
        """The panel of each chart that the run logged, by its key."""
        shown = self.config.get("_wandb", {}).get("visualize", {})
        return {key: chart["panel_config"] for key, chart in shown.items()}

    @property
    def metrics(self) -> dict[str, Values]:
        """What the run defined for each metric or pattern of metrics."""
        return {entry.get("1") or entry["2"]: self._metric(entry) for entry in self._metrics()}

    def _metrics(self) -> list[Values]:
        return list(self.config["_wandb"].get("m", []))

    def _metric(self, entry: Values) -> Values:
        axis = entry.get("4") or (self._metrics()[entry["5"] - 1].get("1") if "5" in entry else None)
        return {"axis": axis, "summary": entry.get("7", [])}

    def table(self, key: str) -> list[Values]:
        """The rows of a table that the run logged."""
        (entry,) = [row[key] for row in self.history if key in row]
        assert entry["_type"] == "table-file"
        content = json.loads(self.files[entry["path"]])
        return [dict(zip(content["columns"], row, strict=True)) for row in content["data"]]


@dataclass
class WandbServer:
    """What the client has sent, and how to answer from now on."""

    address: str = ""
    runs: dict[str, StoredRun] = field(default_factory=dict)
    sweeps: list[Values] = field(default_factory=list)  # their configurations
    trials: list[Values] = field(default_factory=list)  # options of the runs that agents start next, by name
    views: list[Values] = field(default_factory=list)  # workspaces and reports
    artifacts: dict[str, Values] = field(default_factory=dict)
    used_artifacts: list[str] = field(default_factory=list)
    alerts: list[Values] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    fails: Callable[[str], int | None] = lambda place: None  # the status of an error for a query or path; 0: silence
    refusal: str = ""  # of views
    faults: list[str] = field(default_factory=list)  # questions that this server could not answer
    lock: Any = field(default_factory=Lock)

    def runs_of(self, job_type: str) -> list[StoredRun]:
        """The runs of a type, by name."""
        found = [run for run in self.runs.values() if run.facts.get("jobType") == job_type]
        return sorted(found, key=lambda run: str(run.facts["displayName"]))

    def answer(self, name: str, query: str, given: Values) -> Values:
        """The data that answer a query."""
        match name:
            case "RunResumeStatus":
                return {"model": {**self._project(given["project"]), "bucket": self._resumed(given["name"])}}
            case "UpsertBucket":
                return self._upsert_run(given)
            case "CreateRunFiles":
                files = [{"name": one, "uploadUrl": self._url(given["run"], one)} for one in given["files"]]
                return {"createRunFiles": {"runID": given["run"], "uploadHeaders": [], "files": files}}
            case "CreateArtifact":
                return self._create_artifact(given["input"])
            case "CreateArtifactManifest" | "UpdateArtifactManifest":
                url = self._url("manifests", given.get("artifactID") or given["artifactManifestID"])
                file = {"id": "file", "uploadUrl": url, "uploadHeaders": []}
                manifest = {"id": given.get("artifactID") or given["artifactManifestID"], "file": file}
                return {name[0].lower() + name[1:]: {"artifactManifest": manifest}}
            case "CreateArtifactFiles":
                return {"createArtifactFiles": {"files": {"edges": self._artifact_files(given["input"])}}}
            case "CommitArtifact":
                self.artifacts[given["artifactID"]]["committed"] = True
                return {"commitArtifact": {"artifact": {"id": given["artifactID"], "digest": "d"}}}
            case "ArtifactByID":
                return {"artifact": self._artifact(given["id"])}
            case "ClientIDMapping":
                return {"clientIDMapping": {"serverID": self._server_id(given["clientID"])}}
            case "UseArtifact":
                self.used_artifacts.append(given["input"]["artifactID"])
                return {"useArtifact": {"artifact": {"id": given["input"]["artifactID"]}}}
            case "NotifyScriptableRunAlert":
                self.alerts.append(given)
                return {"notifyScriptableRunAlert": {"success": True}}
            case "ProjectInternalId":
                return {"project": {**self._project(given["projectName"]), "internalId": given["projectName"]}}
            case "GetProjects":
                owned = {"entityName": ENTITY, "createdAt": "2026-01-01T00:00:00Z", "isBenchmark": False, "user": None}
                edges = [{"node": self._project(run.project) | owned} for run in self.runs.values()]
                return {"models": {"edges": edges, "pageInfo": {"hasNextPage": False, "endCursor": None}}}
            case "UpsertSweep":
                self.sweeps.append(
                    json.loads(given["config"]) if given["config"][0] == "{" else yaml.safe_load(given["config"])
                )
                sweep = {"name": f"sweep{len(self.sweeps)}", "project": self._project(given["projectName"])}
                return {"upsertSweep": {"sweep": sweep, "configValidationWarnings": []}}
            case "SweepWithRuns":
                found = {"name": given["sweep"], "config": json.dumps(self.sweeps[-1]), "runs": {"edges": []}}
                return {"project": {"sweep": found}}
            case "CreateAgent":
                return {"createAgent": {"agent": {"id": "agent"}}}
            case "Heartbeat":
                commands = [] if json.loads(given["runState"]) else [self._next_trial()]
                return {"agentHeartbeat": {"agent": {"id": "agent"}, "commands": json.dumps(commands)}}
            case "ServerFeaturesQuery":
                return {"serverInfo": {"features": []}}
        if "upsertView" in query:
            self.views.append(given)
            view = {"id": str(len(self.views)), "name": f"nw-view{len(self.views)}-v", "displayName": "", "type": ""}
            return {"upsertView": {"view": view, "inserted": True}}
        teams: Values = {"edges": []}
        viewer = {"id": "1", "entity": ENTITY, "username": ENTITY, "email": "", "flags": "{}", "teams": teams}
        return {"viewer": viewer, "entity": None, "project": None}

    def _next_trial(self) -> Values:
        """What an agent without a run does next."""
        if not self.trials:
            return {"type": "exit"}
        args = {name: {"value": value} for name, value in self.trials.pop(0).items()}
        program = self.sweeps[-1].get("program")
        return {"type": "run", "run_id": f"trial{len(self.trials)}", "args": args, "program": program}

    def _project(self, name: str) -> Values:
        return {"id": name, "name": name, "entity": {"id": ENTITY, "name": ENTITY}}

    def _upsert_run(self, given: Values) -> Values:
        known = given.get("name") in self.runs or given.get("id") in self.runs
        run = self.runs.setdefault(
            given.get("name") or given["id"], StoredRun(given.get("name") or given["id"], given.get("project") or "")
        )
        run.starts += "host" in given and given["host"] is not None
        run.facts |= {key: value for key, value in given.items() if value is not None}
        if given.get("config"):
            run.config = {key: entry["value"] for key, entry in json.loads(given["config"]).items()}
        bucket = {"id": run.id, "name": run.id, "displayName": run.facts.get("displayName"), "description": None}
        bucket |= {"config": None, "sweepName": None, "project": self._project(run.project)}
        bucket["historyLineCount"] = len(run.history)
        return {"upsertBucket": {"bucket": bucket, "inserted": not known}}

    def _resumed(self, name: str) -> Values | None:
        run = self.runs.get(name)
        if run is None:
            return None
        bucket = {key: run.facts.get(key) for key in ("displayName", "tags", "notes")} | {"id": run.id, "name": run.id}
        bucket |= {"historyLineCount": len(run.history), "eventsTail": "[]"}
        bucket["historyTail"] = json.dumps([json.dumps(row) for row in run.history[-1:]])
        bucket["logLineCount"] = len(run.lines.get("output.log", {}))
        bucket["eventsLineCount"] = len(run.lines.get("wandb-events.jsonl", {}))
        bucket["summaryMetrics"] = json.dumps(run.summary)
        bucket["config"] = json.dumps({key: {"value": value} for key, value in run.config.items()})
        bucket["wandbConfig"] = json.dumps({"t": run.config.get("_wandb", {}).get("t", {})})
        return bucket

    def _create_artifact(self, given: Values) -> Values:
        number = f"artifact{len(self.artifacts)}"
        self.artifacts[number] = {**given, "committed": False, "files": []}
        made = {"id": number, "state": "PENDING", "artifactSequence": {"latestArtifact": None}}
        return {"createArtifact": {"artifact": made}}

    def _artifact(self, number: str) -> Values:
        sent = self.artifacts[number]
        project = self._project(sent["projectName"]) | {"internalId": sent["projectName"]}
        collection = sent.get("artifactCollectionName") or sent["artifactCollectionNames"][0]
        unknown = dict.fromkeys(["versionIndex", "description", "historyStep", "commitHash", "updatedAt"])
        return {
            **unknown,
            "id": number,
            "artifactSequence": {"name": collection, "project": project},
            "artifactType": {"name": sent["artifactTypeName"]},
            **{"metadata": sent["metadata"], "ttlDurationSeconds": -2, "ttlIsInherited": True, "tags": []},
            **{"state": "COMMITTED", "size": 0, "digest": sent["digest"], "fileCount": len(sent["files"])},
            **{"createdAt": "2026-01-01T00:00:00Z", "aliases": []},
        }

    def _artifact_files(self, given: Values) -> list[Values]:
        edges = []
        for file in given["artifactFiles"]:
            number = file["artifactID"]
            self.artifacts[number]["files"].append(file["name"])
            url = self._url(number, file["name"])
            node = {"storagePath": file["name"], "uploadUrl": url, "uploadHeaders": [], "uploadMultipartUrls": None}
            edges.append({"node": node | {"artifact": {"id": number}}})
        return edges

    def _server_id(self, client: str) -> str | None:
        ids = (number for number, artifact in self.artifacts.items() if artifact.get("clientID") == client)
        return next(ids, None)

    def _url(self, owner: str, name: str) -> str:
        return f"{self.address}/storage/{quote(owner)}/{quote(name)}"

    def stream(self, run: StoredRun, content: Mapping[str, Any]) -> None:
        """Takes rows of the history, the summary and the end of a run."""
        for name, chunk in (content.get("files") or {}).items():
            if name == "wandb-summary.json":
                run.summary = json.loads(chunk["content"][-1])
                continue
            lines = run.lines.setdefault(name, {})
            lines |= {chunk["offset"] + i: line for i, line in enumerate(chunk["content"])}
        if content.get("complete"):
            run.exit_code = content["exitcode"]

    def store(self, owner: str, name: str, content: bytes) -> None:
        """Takes a file of a run or of an artifact."""
        if owner in self.runs:
            self.runs[owner].files[name] = content
        elif owner in self.artifacts:
            self.artifacts[owner].setdefault("contents", {})[name] = content


def _handler(server: WandbServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(self.path, lambda: {})

        def do_POST(self) -> None:
            body = self._body()
            if self.path.startswith("/sdk/otel/"):  # measurements of the client itself
                self._answer(self.path, lambda: {})
                return
            content = json.loads(body or b"{}")
            if self.path != "/graphql":
                run = server.runs[self.path.split("/")[4]]  # of .../file_stream
                self._answer(self.path, lambda: server.stream(run, content) or {})
                return
            query = content["query"]
            found = re.search(r"(?:query|mutation)\s+(\w+)", query)
            name = found[1] if found else ""
            if "upsertView" in query and server.refusal:
                self._answer(name, lambda: {"errors": [{"message": server.refusal}]})
                return
            self._answer(name, lambda: {"data": server.answer(name, query, content.get("variables") or {})})

        def do_PUT(self) -> None:
            body = self._body()
            _, _, owner, name = self.path.split("/", 3)
            self._answer(self.path, lambda: server.store(owner, unquote(name), body) or {})

        def _body(self) -> bytes:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            return gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body

        def _answer(self, place: str, content: Callable[[], Values]) -> None:
            server.requests.append(place)
            status = server.fails(place)
            if status == 0:
                time.sleep(3600)
            with server.lock:
                refused = {"errors": [{"message": f"refused with {status}"}]}
                try:
                    text = json.dumps(content() if status is None else refused).encode()
                except Exception as error:
                    server.faults.append(f"{place}: {error!r}")
                    raise
            self.send_response(status or 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *words: object) -> None:
            pass

    return Handler


@contextmanager
def wandb_server() -> Iterator[WandbServer]:
    """A server with one user; the environment names it and holds the user's key."""
    server = WandbServer()
    with served_by(_handler(server)) as server.address, pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_BASE_URL", server.address)
        patch.setenv("WANDB_API_KEY", KEY)
        try:
            _forget_servers()
            yield server
        finally:
            _forget_servers()
    assert not server.faults, server.faults


def _forget_servers() -> None:
    """Ends the client's service, which keeps the address of the first server that it saw."""
    if "wandb" in sys.modules:
        sys.modules["wandb"].teardown()


def upload(folder: Path) -> None:
    """Runs the command that uploads what waits in a folder."""
    program, *words = shlex.split(sync_command(folder) or "")
    subprocess.run([sys.executable, "-m", program, *words, "--yes"], check=True, capture_output=True, cwd="/")
