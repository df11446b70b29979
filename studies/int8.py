"""What does int8 cost each attention in ONNX Runtime and in ExecuTorch? The table of docs/predict.md.

usage: python studies/int8.py                         write the table (`make docs`)
       python studies/int8.py measure RUNS [WORD...]  first measure what lacks, in RUNS/ATTENTION-SEED, with the words
                                                      that name the data (needs the extras export and executorch)

ONNX Runtime's int8 is static QDQ, ExecuTorch's the XNNPACK quantiser by pt2e; both have one scale for each output
channel of a weight and one for a tensor of activations, calibrated on the same training pictures. Every file scores all
test pictures in its own runtime. A time is processor time on one thread, the median of rounds in which all files of
seed 0 take turns. `identity` mixes nothing: what int8 costs it is not the mixer's.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import mean, median
from time import process_time
from typing import Any

import numpy as np
import torch
from growth import processor_name
from marked_sections import with_section
from results import RESULTS
from torch import Tensor

from sliceformer_lab import load_run
from sliceformer_lab.__main__ import main
from sliceformer_lab.commands.export.program import exported, sample_inputs
from sliceformer_lab.runs.files import write_text
from sliceformer_lab.runs.plain_text import markdown_table
from sliceformer_lab.training.saved.saved_run import Run

PAGE, RESULT = Path(__file__).resolve().parent.parent / "docs" / "predict.md", RESULTS / "int8.json"
ROWS, SEEDS = ("mha", "csp", "sliceformer", "pooling", "depthwise_conv", "identity"), (0, 1, 2)
RUNTIMES = {"onnx": "ONNX Runtime", "executorch": "ExecuTorch"}
WORDS = (
    *("task=mnist", "task.patch_size=4", "task.pool=mean", "data.augment=none", "data.limit_train=6000"),
    *("encoder=tiny", "optim=digits", "optim.epochs=6", "callbacks=minimal", "pictures=false", "reference=null"),
)
NUM_CALIBRATION, ROUNDS = 256, 300
MOVES = {"QuantizeLinear", "DequantizeLinear", "Reshape", "Transpose", "Shape", "Squeeze", "Unsqueeze", "Expand"}
MOVES |= {"Gather", "GatherElements", "Slice", "Concat", "Split", "Pad", "Cast", "Range", "Flatten"}
Predict = Callable[[Tensor], Tensor]


def onnx_session(file: Path, optimised: Path | None = None) -> Predict:
    """What ONNX Runtime computes from a file on one thread; `optimised` is where it writes the graph that it runs."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if optimised is not None:
        options.optimized_model_filepath = str(optimised)
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda x: torch.from_numpy(session.run(None, {name: x.numpy()})[0])


def onnx_int8(source: Path, target: Path, pictures: Tensor) -> Counter[str]:
    """Writes `source` in int8 and returns the operators of the optimised graph that compute in floating point."""
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Pictures(CalibrationDataReader):
        def __init__(self, name: str) -> None:
            self.batches: Iterator[dict[str, np.ndarray]] = iter([{name: one.numpy()} for one in pictures.split(1)])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.batches, None)

    with tempfile.TemporaryDirectory() as scratch:
        prepared, optimised = Path(scratch) / "prepared.onnx", Path(scratch) / "optimised.onnx"
        quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
        reader = Pictures(onnx.load(str(prepared)).graph.input[0].name)
        quantize_static(str(prepared), str(target), reader, quant_format=QuantFormat.QDQ, per_channel=True)
        onnx_session(target, optimised)
        nodes = [node.op_type for node in onnx.load(str(optimised)).graph.node]
    return Counter(name for name in nodes if name not in MOVES and not name.startswith(("QLinear", "QGemm", "MatMulI")))


def edge_session(file: Path) -> Predict:
    """What ExecuTorch computes from a file on one thread."""
    from executorch.extension.pybindings.portable_lib import _unsafe_reset_threadpool
    from executorch.runtime import Runtime

    method = Runtime.get().load_program(file).load_method("forward")
    _unsafe_reset_threadpool(1)
    return lambda x: torch.cat([method.execute([one])[0] for one in x.split(1)])


def edge_int8(run: Run, target: Path, pictures: Tensor) -> Counter[str] | None:
    """Writes a run's model in int8 and returns the operators that XNNPACK does not compute; None if it fails."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from executorch.exir import to_edge_transform_and_lower
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantiser = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    model = prepare_pt2e(exported(run.model, run.spec, None, one_input=True).module(), quantiser)
    for one in pictures.split(1):
        model(one)
    program = torch.export.export(convert_pt2e(model), (pictures[:1],))
    try:
        lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    except AssertionError:  # of pooling: "Invalid partition, found dependency cycles"
        return None
    calls = [node.target for node in lowered.exported_program().graph.nodes if node.op == "call_function"]
    target.write_bytes(lowered.to_executorch().buffer)
    return Counter(call._op.overloadpacket.__name__ for call in calls if hasattr(call, "_op"))


def files(folder: Path, runtime: str) -> tuple[Path, Path]:
    """The file of the command `export` and that of int8."""
    ending = {"onnx": "onnx", "executorch": "pte"}[runtime]
    return folder / "export" / runtime / f"model.{ending}", folder / f"int8.{ending}"


def measure(folder: Path, words: Sequence[str]) -> dict[str, Any]:
    """Trains and exports what `folder` lacks, writes both files in int8, and scores all four."""
    if not folder.exists() and main([*words, f"hydra.run.dir={folder}"]):
        sys.exit(f"{folder}: the run failed")
    run, found = load_run(folder), {}
    loaders = run.data.test_dataloader()
    loaders = loaders if isinstance(loaders, list) else [loaders]
    test = [(batch.inputs, batch.target) for loader in loaders for batch in loader]
    pictures = torch.cat([batch.inputs for batch in run.data.train_dataloader()])[:NUM_CALIBRATION]
    for runtime in RUNTIMES:
        source, small = files(folder, runtime)
        if not source.exists() and main(["export", f"resume={folder}", f"format={runtime}"]):
            found[runtime] = None  # the command refused to write it
            continue
        left = onnx_int8(source, small, pictures) if runtime == "onnx" else edge_int8(run, small, pictures)
        open_file = onnx_session if runtime == "onnx" else edge_session
        correct, written = [], (source,) if left is None else (source, small)
        for predict in map(open_file, written):
            correct.append(sum(int((predict(x).argmax(1) == classes).sum()) for x, classes in test))
        sizes = [sum(part.stat().st_size for part in file.parent.glob(f"{file.name}*")) for file in written]
        found[runtime] = {"correct": correct, "bytes": sizes, "left": dict(sorted((left or {}).items()))}
    return {"size": sum(len(classes) for _, classes in test), **found}


def times(runs: Path) -> dict[str, dict[str, list[float]]]:
    """Milliseconds of one picture before and after int8, by attention and runtime."""
    sessions: dict[tuple[str, str, int], Predict] = {}
    for row, runtime in product(ROWS, RUNTIMES):
        for place, file in enumerate(files(runs / f"{row}-0", runtime)):
            if not file.exists():
                continue
            sessions[row, runtime, place] = onnx_session(file) if runtime == "onnx" else edge_session(file)
    run = load_run(runs / f"{ROWS[0]}-0")
    picture = sample_inputs(run.model, run.spec, batch=1)[0]
    rounds: dict[tuple[str, str, int], list[float]] = {key: [] for key in sessions}
    for _ in range(ROUNDS):
        for key, predict in sessions.items():
            started = process_time()
            predict(picture)
            rounds[key].append(1000 * (process_time() - started))
    found: dict[str, dict[str, list[float]]] = {row: {one: [] for one in RUNTIMES} for row in ROWS}
    for (row, runtime, _), values in rounds.items():
        found[row][runtime].append(round(median(values), 3))
    return found


def measure_all(runs: Path, data: Sequence[str]) -> None:
    """Measures what lacks in `runs`, one file int8.json a run, and writes the result."""
    from executorch.version import __version__ as edge_version
    from onnxruntime import __version__ as onnx_version

    torch.set_num_threads(1)
    found = {}
    for seed, row in product(SEEDS, ROWS):
        folder = runs / f"{row}-{seed}"
        if not (folder / "int8.json").exists():
            facts = measure(folder, [*WORDS, f"attention={row}", f"seed={seed}", *data])
            write_text(folder / "int8.json", json.dumps(facts))
        found[folder.name] = json.loads((folder / "int8.json").read_text("utf-8"))
    versions = {"torch": torch.__version__, "onnxruntime": onnx_version, "executorch": edge_version}
    machine = {"processor": processor_name(), "load": round(os.getloadavg()[0], 1), "cores": os.cpu_count()}
    facts = {"words": " ".join(WORDS), "versions": versions, **machine, "rounds": ROUNDS, "ms": times(runs)}
    write_text(RESULT, json.dumps({**facts, "runs": found}) + "\n")


def table(result: Mapping[str, Any]) -> str:
    """A row for each attention and runtime; a range is that of the seeds."""
    head = [
        "attention",
        "runtime",
        "seeds",
        "accuracy, %",
        "int8, points",
        "kB, int8",
        "ms, int8",
        "not int8, or outside",
    ]
    rows = []
    for row, (runtime, name) in product(ROWS, RUNTIMES.items()):
        measured = [run for seed in SEEDS if (run := result["runs"].get(f"{row}-{seed}"))]
        runs = [run for run in measured if run[runtime]]
        if not runs:
            rows.append([f"`{row}`", name, str(len(measured)), "refused", *[""] * 4])
            continue
        before = [100 * run[runtime]["correct"][0] / run["size"] for run in runs]
        sizes = ", ".join(f"{size / 1000:.0f}" for size in runs[0][runtime]["bytes"])
        milliseconds = ", ".join(f"{value:.2f}" for value in result["ms"][row][runtime])
        if len(runs[0][runtime]["correct"]) == 1:
            rows.append([f"`{row}`", name, str(len(runs)), f"{mean(before):.2f}", "failed", sizes, milliseconds, ""])
            continue
        after = [100 * run[runtime]["correct"][1] / run["size"] for run in runs]
        changes = [last - first for first, last in zip(before, after, strict=True)]
        shown = f"{mean(changes):+.2f}"
        if len(runs) > 1:
            shown += f" ({min(changes):+.2f} to {max(changes):+.2f})"
        left = Counter(runs[0][runtime]["left"])
        if row != "identity":
            left -= Counter(result["runs"]["identity-0"][runtime]["left"])
        names = ", ".join(f"{count} {operator}" for operator, count in left.items()) or "none"
        rows.append([f"`{row}`", name, str(len(runs)), f"{mean(before):.2f}", shown, sizes, milliseconds, names])
    return markdown_table(head, *rows)


def page() -> str:
    """The page with the table between its markers."""
    result = json.loads(RESULT.read_text("utf-8"))
    versions = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    note = (
        f"{result['processor']}, {result['cores']} cores, load {result['load']}; {versions}; "
        f"`{result['words']}`; medians of {result['rounds']} rounds."
    )
    note = textwrap.fill(note, width=120, break_long_words=False, break_on_hyphens=False)
    return with_section(PAGE.read_text(encoding="utf-8"), "int8", f"{table(result)}\n\n{note}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["measure", runs, *data]:
            measure_all(Path(runs), data)
        case []:
            pass
        case _:
            sys.exit(__doc__)
    write_text(PAGE, page())
