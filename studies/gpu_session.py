"""All that a GPU is wanted for, in 30 minutes: tests, speed, training. Each part leaves a JSON file when it ends.

usage: python studies/gpu_session.py [device=cuda|cpu] [folder=outputs/gpu] [data=FOLDER]     (`make gpu ARGS=...`)

The same command goes on where it was stopped: a part whose file says that it ended is not run again, unless the commit
or the device has changed, and a training continues from its last checkpoint. A part that fails or takes longer than its
limit does not stop the others. device=cpu rehearses everything with small sizes: the tests of a GPU are collected and
skipped. CIFAR-10 is read from data=FOLDER, or downloaded.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from sliceformer_lab.runs.commit import git_commit
from sliceformer_lab.runs.files import write_json

ROOT = Path(__file__).resolve().parents[1]
TRAINED = ("csp", "mha", "sliceformer")
DEFAULTS = {"device": "cuda", "folder": "outputs/gpu", "data": ""}
TESTS_OF_RUNS = ("tests/config/test_grid.py", "tests/training/test_distributed.py", "tests/training/test_resume.py")
MAX_WORKERS = 12  # of the tests: most of a test is compiling, and a process takes half a GB of the GPU
TAIL = 2000  # last characters of the output that a file keeps


@dataclass(frozen=True)
class Part:
    """A command, the seconds that it may take, and the JSON file that it writes."""

    name: str
    command: Sequence[str]
    limit_s: int
    results: Path
    kept: Sequence[str] = field(default=())  # keys of the results; none: all


def parts(device: str, folder: Path, data: str) -> list[Part]:
    """The parts in order: what makes others worthless if it fails comes first."""
    results = ROOT / "studies" / "results"
    judge = [sys.executable, "studies/goals_page.py", str(folder / "layers"), str(folder / "operators")]
    tiles = [sys.executable, "studies/gpu_tiles.py", "measure"]
    on_gpu = device == "cuda"
    return [
        _tests("kernels", ["tests/permute"], 150, folder),
        _tests("attentions", ["tests/attention"], 150, folder),
        _tests("runs", TESTS_OF_RUNS, 150, folder),
        _benchmark("layers", device, 120, folder),
        _benchmark("operators", device, 150, folder),
        _benchmark("padded", device, 60, folder),
        *([Part("goals", judge, 60, results / "goals_cuda.json", kept=("goals",))] if on_gpu else ()),
        *(_training("train", attention, device, 130, folder, data) for attention in TRAINED),
        *(_training("large", attention, device, 60, folder, data) for attention in TRAINED),
        *(_training("compiled", attention, device, 95, folder, data) for attention in TRAINED[:2]),
        *([Part("tiles", tiles, 200, results / "gpu_tiles.json", kept=("device", "copy_ms"))] if on_gpu else ()),
    ]


def _tests(name: str, places: Sequence[str], limit_s: int, folder: Path) -> Part:
    file = folder / f"tests_{name}.json"
    workers = ["-n", str(min(MAX_WORKERS, os.cpu_count() or 1)), "--dist", "worksteal"]
    words = ["-m", "pytest", "-q", "-m", "gpu", *workers, f"--json={file}", *places]
    return Part(name, [sys.executable, *words], limit_s, file)


def _benchmark(name: str, device: str, limit_s: int, folder: Path) -> Part:
    """`layers`, `operators`, or `padded`: layers on samples of unequal length."""
    suite = "operators" if name == "operators" else "layers"
    sizes = ["dtype=bfloat16", "sizes=[64,1024,4096,16384]"]
    if device == "cpu":
        sizes = ["dtype=float32", "sizes=[16]", "batch=2", "rounds=2", "warmup=1"]
    if suite == "layers":
        sizes += ["attentions=[csp,sliceformer]", f"padded={str(name == 'padded').lower()}"]
    target = folder / name
    words = ["benchmark", f"suite={suite}", f"device={device}", *sizes, f"hydra.run.dir={target}"]
    return Part(name, [sys.executable, "-m", "sliceformer_lab", *words], limit_s, target / "results.json")


def _training(kind: str, attention: str, device: str, limit_s: int, folder: Path, data: str) -> Part:
    """Kinds: `train` has the paper's batch of 64, `compiled` compiles it, and `large` has a batch that fills a GPU.

    With the paper's batch Python launches too few operations a second to keep a large GPU busy.
    """
    target = folder / f"{kind}_{attention}"
    words = ["recipe=csp/table3_cifar10", f"attention={attention}", f"hydra.run.dir={target}"]
    if data:
        words += [f"data.root={data}", "data.verify=false"]  # the results say whether the files are the official ones
    if kind == "compiled":
        words.append("trainer.compile=true")
    if device == "cuda":
        size = {
            "train": ["optim.epochs=5"],
            "large": ["optim.epochs=3", "callbacks=minimal", "data.batch_size=1024"],
            "compiled": ["optim.epochs=3", "callbacks=minimal"],
        }
        words += ["trainer=gpu", "data.num_workers=8", *size[kind]]
    else:
        words += ["optim.epochs=1", "data.limit_train=16", "data.limit_eval=8", "data.batch_size=8", "encoder.depth=1"]
    if any(target.rglob("last.ckpt")):
        words = [f"resume={target}"]
    kept = ("status", "metrics", "parameters", "samples_per_second", "peak_memory_gb", "wall_seconds", "warnings")
    command = [sys.executable, "-m", "sliceformer_lab", *words]
    return Part(target.name, command, limit_s, target / "summary.json", kept)


@contextmanager
def watch_gpu() -> Iterator[list[int]]:
    """A list that has, when the block ends, the first GPU's use in percent in each second; empty without nvidia-smi."""
    found: list[int] = []
    if (program := shutil.which("nvidia-smi")) is None:
        yield found
        return
    words = ["--id=0", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "--loop=1"]
    with subprocess.Popen([program, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as watcher:
        try:
            yield found
        finally:
            watcher.terminate()
            found += [int(line) for line in watcher.communicate()[0].split() if line.isdigit()]


def run(part: Part) -> dict[str, Any]:
    """Run a part -> what its file says: command, seconds, exit code (None: too slow), end of the output, results.

    `gpu_percent` is the mean use of the GPU over all seconds of the part, and over those in which it did anything.
    """
    start = time.monotonic()
    with watch_gpu() as percents:
        try:
            ended = subprocess.run(
                part.command, cwd=ROOT, capture_output=True, text=True, timeout=part.limit_s, check=False
            )
            code, output = ended.returncode, ended.stdout + ended.stderr
        except subprocess.TimeoutExpired as stopped:
            pieces = (stopped.stdout, stopped.stderr)
            code, output = None, "".join(piece.decode(errors="replace") for piece in pieces if isinstance(piece, bytes))
    busy = [percent for percent in percents if percent > 0]
    results = json.loads(part.results.read_text(encoding="utf-8")) if part.results.exists() else None
    if results is not None and part.kept:
        results = {key: results[key] for key in part.kept if key in results}
    return {
        "command": " ".join(["python", *part.command[1:]]),
        "seconds": round(time.monotonic() - start, 1),
        "exit_code": code,
        "gpu_percent": {"all": round(fmean(percents), 1), "busy": round(fmean(busy), 1)} if busy else None,
        "output": output[-TAIL:],
        "results": results,
    }


def main(words: Sequence[str]) -> int:
    """Run what is left to do -> how many parts failed or were too slow."""
    options = dict(DEFAULTS)
    for word in words:
        key, _, value = word.partition("=")
        if key not in options:
            raise SystemExit(f"{word}: no such option; write {', '.join(f'{name}=...' for name in options)}")
        options[key] = value
    folder = Path(options["folder"]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    facts = {"device": options["device"], "commit": git_commit()}
    failed = 0
    for part in parts(options["device"], folder, options["data"]):
        file = folder / f"{part.name}.json"
        before = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        if before.get("exit_code") == 0 and {key: before[key] for key in facts} == facts:
            sys.stdout.write(f"{part.name}: done before\n")
            continue
        found = run(part)
        write_json(file, facts | found)
        ending = {0: "done", None: f"stopped after {part.limit_s} s"}.get(found["exit_code"], "FAILED")
        sys.stdout.write(f"{part.name}: {ending}, {found['seconds']:.0f} s, {file}\n")
        sys.stdout.flush()
        failed += found["exit_code"] != 0
    return failed


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
