"""Growth of one layer's time and memory with the number of tokens: measurement, figure and Markdown table.

Time is processor time of a forward and a backward pass on one thread, without waiting: the median over rounds in which
all attentions and lengths take turns.
Memory is the peak of what torch's allocator holds during such a pass (torch.profiler's memory events). It counts
tensors kept for the backward pass and gradients, not parameters and input.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from torch.profiler import ProfilerActivity, profile

from sliceformer_lab.attention import Attention, LayerSpec, build_layer
from sliceformer_lab.config.compose import load_option
from sliceformer_lab.measures.drawing import MUTED, Chart, Look, legend_of, look_at, save_chart
from sliceformer_lab.measures.line_panels import value_axis
from sliceformer_lab.runs.plain_text import markdown_table

STUDIES = Path(__file__).resolve().parent
MEASURED, PICTURE = STUDIES / "results" / "growth.json", STUDIES / "figures" / "growth.png"
LENGTHS = (64, 256, 1024, 4096, 16384, 65536)
FITTED = 3  # longest lengths, to which the exponents are fitted
MAX_BYTES, MAX_SECONDS = 2**30, 20  # a length is skipped if the growth so far predicts more
DIM, HEADS, ROUNDS = 64, 4, 3
COLOURED = ("mha", "linear", "performer", "samsa", "sliceformer", "csp", "identity")  # in the picture
GREY = "#C8C8C8"
TEXT = """\
## Growth

One layer of {dim} channels and {num_heads} heads, batch 1, float32, forward and backward pass. Time is processor time
on one thread of {processor} (torch {torch}; load {load} on {cores} cores before the start; median of {rounds} rounds in
which all take turns).{later}
Longer lengths are given as multiples of the first. p is the exponent of N^p fitted to the {fitted} longest lengths of
a row; compare it with the cost that the class states. Fixed costs of starting operations make it smaller than stated.
Rows that end at 1,024 tokens have no p, because starting costs are most of their time at 64.

Where p exceeds the stated exponent, memory is the reason, not arithmetic. Of the operators with a cost of N,
Performer has the largest excess; of those with N^2, `mega`, `random_mixing` and `differential` have .3 to .4. The C
library returns their large tensors to the system, so each pass fetches the pages anew. We measured Performer alone
(1,024 to 16,384 tokens, getrusage, load 1.5; p = 1.33, 1.29 in the table): at 16,384 tokens it has 311,000 page
faults, and spends .39 of .87 s in the system. User time alone gives p = 1.12. With
`GLIBC_TUNABLES=glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=4294967296` there are no faults, the pass takes
.54 s, and p is 1.18. Longformer has p = 1.01 in the table. Beyond 4,096 tokens the tensors of a pass no longer fit
into the cache of a core (2 MB), so rows with little arithmetic for each number, such as `fnet` and `depthwise_conv`,
have 1.2. `sinkhorn` and `sparse` have blocks of a fixed size, so their N^2 part enters late.

Memory is the peak that the pass itself holds (torch.profiler's memory events). A row ends where the next length would
take more than {most_gb:.0f} GB or {most_seconds} seconds, judged by its growth so far.
`python studies/attentions.py measure` measures again; the numbers are in
[studies/results/growth.json](../studies/results/growth.json).

![Time and memory of one layer from 64 to 65,536 tokens](../studies/figures/growth.png)
"""


def measure(names: Iterable[str], keep: bool = False) -> None:
    """Measure these attentions and write studies/results/growth.json; `keep` keeps what it has of others."""
    torch.set_num_threads(1)
    processor = {"name": processor_name(), "cores": os.cpu_count(), "load_before": os.getloadavg()[0]}
    found: dict[str, dict[str, list[float]]] = {name: {"seconds": [], "peak_bytes": []} for name in names}
    layers: dict[tuple[str, int], Attention] = {}
    for name in found:
        peaks, times = found[name]["peak_bytes"], list[float]()
        for num_tokens in LENGTHS:
            if _next(peaks) > MAX_BYTES or _next(times) > MAX_SECONDS:
                break
            layers[name, num_tokens] = layer = _layer(name, num_tokens)
            peaks.append(_peak_bytes(layer, num_tokens))  # and warm up
            times.append(_seconds(layer, num_tokens))
    rounds = [{key: _seconds(layer, key[1]) for key, layer in layers.items()} for _ in range(ROUNDS)]
    for key in layers:
        found[key[0]]["seconds"].append(round(median(one[key] for one in rounds), 6))
    result = {
        "command": "python studies/attentions.py measure",
        "processor": processor,
        "versions": {"python": platform.python_version(), "torch": version("torch")},
        "layer": {"dim": DIM, "num_heads": HEADS, "batch": 1, "dtype": "float32", "threads": 1, "rounds": ROUNDS},
        "lengths": LENGTHS,
        "attentions": found,
    }
    if keep:
        before = read()
        later = {"names": sorted(found), "processor": processor, "versions": result["versions"]}
        result = before | {"later": later, "attentions": dict(sorted((before["attentions"] | found).items()))}
    MEASURED.write_text(json.dumps(result) + "\n", encoding="utf-8")


def read() -> dict[str, Any]:
    """The committed measurements."""
    measured: dict[str, Any] = json.loads(MEASURED.read_text(encoding="utf-8"))
    return measured


def digest() -> str:
    """A hash of the measurements; the figure carries it, so that a test sees an outdated figure."""
    return hashlib.sha256(MEASURED.read_bytes()).hexdigest()


def section() -> str:
    """Heading, picture and table."""
    measured = read()
    text = TEXT.format(
        **measured["layer"],
        processor=measured["processor"]["name"],
        cores=measured["processor"]["cores"],
        load=f"{measured['processor']['load_before']:.1f}",
        torch=measured["versions"]["torch"],
        fitted=FITTED,
        most_gb=MAX_BYTES / 2**30,
        most_seconds=MAX_SECONDS,
        later=_later(measured.get("later")),
    )
    first, *multiples = map(_label, measured["lengths"])
    header = ["attention", "stated cost", f"{first}, ms", *multiples, "p", f"{first}, MB", *multiples, "p"]
    rows = []
    for name, found in measured["attentions"].items():
        cells = [
            cell
            for values, unit in ((found["seconds"], 1e-3), (found["peak_bytes"], 1e6))
            for cell in _cells(values, unit, measured["lengths"])
        ]
        rows.append([f"`{name}`", _layer(name, LENGTHS[0]).complexity, *cells])
    return f"{text}\n{markdown_table(header, *rows)}"


def _later(later: dict[str, Any] | None) -> str:
    """A sentence about the attentions that were added to a measurement."""
    if later is None:
        return ""
    processor, torch_version = later["processor"], later["versions"]["torch"]
    machine = f"{processor['name']}, torch {torch_version}, load {processor['load_before']:.1f}"
    return f"\n{', '.join(f'`{name}`' for name in later['names'])} were measured later ({machine})."


def draw() -> None:
    """Write studies/figures/growth.png: the attentions of COLOURED in colours, and all others in grey."""
    measured = read()
    looks = {name: look_at(place, control=name == "identity") for place, name in enumerate(COLOURED)}
    grey = Line2D([], [], color=GREY, label=f"{len(measured['attentions']) - len(looks)} others, in the table")
    panels = [
        partial(
            _panel,
            looks=looks,
            curves={n: np.array(v[key]) / unit for n, v in measured["attentions"].items()},
            title=title,
        )
        for key, unit, title in (("seconds", 1e-3, "Time, ms"), ("peak_bytes", 1e6, "Memory, MB"))
    ]
    save_chart(Chart(panels=panels, legend=[*legend_of(looks), grey], size=(4.6, 3.8)), PICTURE)
    about = PngInfo()
    about.add_text("Measurements", digest())
    with Image.open(PICTURE) as picture:
        picture.save(PICTURE, pnginfo=about)


def _layer(name: str, num_tokens: int) -> Attention:
    torch.manual_seed(0)
    return build_layer(load_option("attention", name), LayerSpec(dim=DIM, num_heads=HEADS, max_len=num_tokens))


def _next(values: Sequence[float]) -> float:
    """The value at the next length, if it grows as before."""
    return values[-1] ** 2 / values[-2] if len(values) > 1 else 0


def _seconds(layer: Attention, num_tokens: int) -> float:
    x = torch.randn(1, num_tokens, DIM, requires_grad=True)
    layer.zero_grad()
    start = process_time()
    layer(x).sum().backward()
    return process_time() - start


def _peak_bytes(layer: Attention, num_tokens: int) -> int:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        _seconds(layer, num_tokens)
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    input_bytes = 4 * num_tokens * DIM  # x is allocated inside the profile but belongs to the caller
    return int(np.cumsum([event.nbytes() for event in events]).max()) - input_bytes


def processor_name() -> str:
    """The processor's name on Linux, else the machine type."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _cells(values: Sequence[float], unit: float, lengths: Sequence[int]) -> list[str]:
    """The first value, the others as its multiples, the fitted exponent; no exponent that includes the first."""
    missing = ["" for _ in lengths[len(values) :]]
    multiples = [
        f"{value / values[0]:.3g}" if value < 1000 * values[0] else f"{value / values[0]:,.0f}" for value in values[1:]
    ]
    last = slice(len(values) - FITTED, len(values))
    is_fitted = len(values) > FITTED
    exponent = f"{np.polyfit(np.log(lengths[last]), np.log(values[last]), 1)[0]:.2f}" if is_fitted else "–"
    return [f"{values[0] / unit:.2g}", *multiples, *missing, exponent]


def _label(length: int) -> str:
    """A number of tokens: 64, 1K, 64K."""
    return f"{length // 1024}K" if length >= 1024 else str(length)


def _panel(
    axes: Axes, looks: Mapping[str, Look], curves: Mapping[str, np.ndarray[Any, np.dtype[np.float64]]], title: str
) -> None:
    for name in sorted(curves, key=looks.__contains__):  # grey lines are below
        values, look = curves[name], looks.get(name)
        if look is None:
            axes.plot(LENGTHS[: len(values)], values, color=GREY, linewidth=0.6)
        else:
            axes.plot(LENGTHS[: len(values)], values, look.line, color=look.colour, marker=look.marker)
    ends = np.array([LENGTHS[0], LENGTHS[-1]])
    low = min(values[0] for values in curves.values())
    for power, name in ((1, "N"), (2, "N^2")):
        axes.plot(ends, low / 2 * (ends / ends[0]) ** power, "--", color=MUTED, linewidth=0.8)
        place = LENGTHS[FITTED]
        axes.annotate(name, (place, low / 2 * (place / ends[0]) ** power), ha="right", va="bottom", color=MUTED)
    axes.set_xscale("log", base=2)
    value_axis(axes, (low / 3, 3 * max(values[-1] for values in curves.values())), log=True)
    axes.set_xticks(LENGTHS, [_label(length) for length in LENGTHS])
    axes.set(title=title, xlabel="tokens")
