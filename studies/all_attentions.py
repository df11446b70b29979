"""Every attention on pictures and on texts of many lengths: three seeds, parameters and speed (docs/attentions.md).

usage: python studies/all_attentions.py run TABLE       train what is not finished, measure the speed, write the results
       python studies/all_attentions.py collect SWEEP_FOLDER...   add the finished runs of sweeps
       python studies/all_attentions.py speed TABLE     measure the speed again, on a quiet machine: two minutes

TABLE is the file of AG News's texts (text,label,split). The runs are those of COMMANDS, with one thread each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import growth
import numpy as np
import torch
from results import RESULTS, finished_runs

from sliceformer_lab.batch import Batch
from sliceformer_lab.config.checked import check_config
from sliceformer_lab.config.explain import job_config
from sliceformer_lab.runs.files import write_text
from sliceformer_lab.runs.plain_text import markdown_table
from sliceformer_lab.training.build import build_data, build_task
from sliceformer_lab.training.interfaces import TaskModule

FILE = RESULTS / "all_attentions.json"
OUTPUT = Path("outputs", "studies", "all_attentions")
CONTROLS = ("identity", "mean", "pooling", "random_mixing", "random_permutation", "depthwise_conv")
OTHERS = (
    *("mha", "csp", "csp_shift_only", "csp_random_order", "csp_gated", "sliceformer", "sliceformer_reference", "samsa"),
    *("agent", "bigbird", "cosformer", "differential", "espformer", "fnet", "gmlp", "hsm", "hydra", "linear"),
    *("linformer", "lion", "lion_selective", "local", "longformer", "luna", "matrix_dense", "matrix_low_rank"),
    *("matrix_toeplitz", "matrix_toeplitz_data", "mlp_mixer", "performer", "polaformer", "rala", "reformer", "s4d"),
    *("shift", "sinkformer", "sinkhorn", "sliced_relu", "softpick", "sparse", "synthesizer", "token_reshape"),
)
SEEDS = (0, 1, 2)
WORDS = {  # task -> options of its runs
    "digits": "task=digits optim.epochs=8 encoder.position_std=1.0",
    "text_csv": (
        "task=text_csv data.split_column=split data.limit_train=4000 data.max_len=64 data.batch_size=32 encoder=tiny "
        "encoder.dropout=0.2 encoder.embed_dropout=0.3 optim.epochs=2 optim.lr=3e-3"
    ),
}
TITLES = {"digits": "digits", "text_csv": "AG News"}
FIXED = "callbacks=minimal pictures=false reference=null"
ROUNDS = 5
Result = Mapping[str, Any]
TEXT = """\
## Trained side by side

Mean test accuracy in percent of the seeds 0, 1 and 2 (lowest to highest). *digits*: pictures of 16 patches, 8 epochs,
positions from N(0, 1), {digits} test pictures. *AG News*: 4,000 training texts of up to 64 word pieces in batches of
similar length, two epochs, two layers of 64 channels, {text_csv} test texts. All rows have one recipe and one learning
rate per task, tuned for none of them. So the table shows that each attention trains, and what it costs. **It is no
ranking**: three seeds cannot order rows that are a point apart, a learning rate of its own may change a row, and small
models on short sequences say little about large ones. Compare a row with the controls (*italic*) first. With 16 tokens
`local`, `longformer`, `sparse` and `sinkhorn` read all tokens and are `mha`; `lion` without decay is `linear`.
`mega` and `csp_causal` were not run.
`pooling` subtracts a token from the mean of its neighbours, which loses much of a text.

Parameters are those of the whole model, most of them word vectors in the second task. Speed is samples in a second of
processor time, training steps without the loader, one thread of {processor} (torch {torch}; load {load:.1f} on {cores}
cores before the start; median of {rounds} rounds in which all take turns). `python studies/all_attentions.py run TABLE`
repeats everything; every run is in [studies/results/all_attentions.json](../studies/results/all_attentions.json).
"""


def collect(sweeps: Iterable[Path]) -> None:
    """Write the finished runs of sweeps to results/all_attentions.json; what it has of the same run is replaced.

    Raises DataError as `finished_runs`.
    """
    results = read()
    runs = {_key(run): run for run in results.get("runs", [])}
    for _, summary in finished_runs(sweeps):
        run = {
            **{key: summary[key] for key in ("task", "attention", "seed", "parameters", "git_commit", "chance")},
            "accuracy": round(summary["metrics"]["test/accuracy"], 5),
            "num_test": summary["protocol"]["num_test"],
            "seconds": round(summary["wall_seconds"]),
        }
        runs[_key(run)] = run
    order = [*CONTROLS, *OTHERS]
    kept = sorted((run for run in runs.values() if run["attention"] in order), key=_key)
    _write(results | {"commands": WORDS, "fixed": FIXED, "runs": kept})


def train(table: Path) -> None:
    """Train what is not finished, one job for each core."""
    for task, words in WORDS.items():
        names, seeds = ",".join((*CONTROLS, *OTHERS)), ",".join(map(str, SEEDS))
        command = [sys.executable, "-m", "sliceformer_lab", "-m", *words.split(), *FIXED.split(), *_data(task, table)]
        command += [f"attention={names}", f"seed={seeds}", "launcher=local", f"hydra.sweep.dir={OUTPUT / task}"]
        subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})


def measure(table: Path) -> None:
    """Measure training steps of all attentions in turns, and write samples per second to the results."""
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    speeds = {task: _speeds(task, table) for task in WORDS}
    machine = {"processor": growth.processor_name(), "cores": os.cpu_count(), "load": load, "torch": torch.__version__}
    _write(read() | {"machine": machine | {"rounds": ROUNDS}, "samples_per_second": speeds})


def _speeds(task: str, table: Path) -> dict[str, float]:
    data = build_data(check_config(job_config([*WORDS[task].split(), *_data(task, table)])))
    data.prepare_data()
    data.setup("fit")
    batch: Batch = next(iter(data.train_dataloader()))
    calls = {}
    for name in (*CONTROLS, *OTHERS):
        torch.manual_seed(0)
        plan = check_config(job_config([*WORDS[task].split(), *_data(task, table), f"attention={name}"]))
        model = build_task(plan, data.spec)
        calls[name] = _step(model.train(), batch)
    for call in calls.values():
        call()  # warms up
    rounds = [{name: _seconds(call) for name, call in calls.items()} for _ in range(ROUNDS)]
    return {name: round(len(batch) / median(times[name] for times in rounds), 1) for name in calls}


def _seconds(call: Callable[[], None]) -> float:
    start = process_time()
    call()
    return process_time() - start


def _step(model: TaskModule, batch: Batch) -> Callable[[], None]:
    """One training step: forward, backward, optimiser."""
    optimizer = model.optim.build_optimizer(model)

    def step() -> None:
        optimizer.zero_grad()
        torch.autograd.backward(model.loss(model(batch), batch.target))
        optimizer.step()

    return step


def section() -> str:
    """Heading, text and table of the page."""
    results = read()
    sizes = {run["task"]: f"{run['num_test']:,}" for run in results["runs"]}
    lines = []
    for name in (*CONTROLS, *sorted(OTHERS)):
        cells = [f"*`{name}`*" if name in CONTROLS else f"`{name}`"]
        for task in WORDS:
            runs = [run for run in results["runs"] if (run["task"], run["attention"]) == (task, name)]
            cells += _cells(runs, results["samples_per_second"][task][name])
        lines.append(cells)
    columns = [f"{title}{unit}" for title in TITLES.values() for unit in ("", ": parameters", ": samples/s")]
    return f"{TEXT.format(**sizes, **results['machine'])}\n{markdown_table(['attention', *columns], *lines)}"


def _cells(runs: list[Result], speed: float) -> list[str]:
    scores = sorted(100 * run["accuracy"] for run in runs)
    missing = "" if len(runs) == len(SEEDS) else f", {len(runs)} seeds"
    accuracy = f"{np.mean(scores):.1f} ({scores[0]:.1f} to {scores[-1]:.1f}{missing})"
    return [accuracy, f"{runs[0]['parameters'] / 1e3:,.0f} K", f"{speed:,.0f}"]


def read() -> dict[str, Any]:
    """The committed results; empty before the first ones."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return found


def _write(results: Mapping[str, Any]) -> None:
    runs = ",\n".join(json.dumps(run) for run in results.get("runs", []))
    rest = json.dumps({key: value for key, value in results.items() if key != "runs"}, indent=1)
    write_text(FILE, f'{rest[:-2]},\n "runs": [\n{runs}\n ]\n}}\n')


def _key(run: Result) -> tuple[str, str, int]:
    return run["task"], run["attention"], run["seed"]


def _data(task: str, table: Path) -> list[str]:
    return [f"data.file={table}", f"data.root={OUTPUT / 'data'}"] if task == "text_csv" else []


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run", table]:
            train(Path(table))
            collect(OUTPUT / task for task in WORDS)
            measure(Path(table))
        case ["collect", *folders] if folders:
            collect(map(Path, folders))
        case ["speed", table]:
            measure(Path(table))
        case _:
            sys.exit(__doc__)
