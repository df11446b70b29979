"""Measures one comparison; runs in its own process and returns rows."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

import torch

from sliceformer_lab.commands.benchmark.benchmark_options import BenchmarkOptions
from sliceformer_lab.commands.benchmark.comparisons import CUSTOM, SpeedComparison, Variant
from sliceformer_lab.commands.benchmark.contenders import Contender, build
from sliceformer_lab.commands.benchmark.rows import MODES, Engine, Mode, SpeedRow
from sliceformer_lab.measures.call_cost import PeakMemory, in_turns, quartiles, saved_bytes
from sliceformer_lab.measures.cost import count_operations

UNCOUNTED = ("multi_head_attention", "varlen_attn")  # single operations whose cost is not counted
FULL = ("can't allocate memory", "not enough memory", "out of memory", "bad_alloc", "could not create a memory object")


def run_contest(comparison: SpeedComparison, options: BenchmarkOptions) -> list[SpeedRow]:
    """A row for every variant and mode, with its measurements or the reason of its failure."""
    torch.set_num_threads(options.threads)
    entries = [
        entry for variant in comparison.variants for entry in _measure_all_but_time(variant, comparison, options)
    ]
    rows = [row for row, _ in entries]
    for mode in MODES:
        ready = {row.name: contender for row, contender in entries if contender is not None and row.mode == mode}
        calls = {name: contender.prepare(mode) for name, contender in ready.items()}
        times = in_turns(calls, options.rounds, options.warmup, options.device)
        for row in rows:
            if row.mode == mode and row.name in times:
                row.rounds = times[row.name]
                row.seconds, row.seconds_q1, row.seconds_q3 = quartiles(row.rounds)
                row.bytes_per_second = _compute_bandwidth(row, row.seconds)
    return rows


def _compute_bandwidth(row: SpeedRow, seconds: float) -> float | None:
    """Bytes a second of an operator that reads and writes each value once; None for all else."""
    if (row.kind, row.mode) != ("operator", "inference"):
        return None
    itemsize: int = getattr(torch, row.dtype).itemsize
    return 2 * row.batch * row.tokens * row.channels * itemsize / seconds


def blank_rows(comparison: SpeedComparison, options: BenchmarkOptions, variant: Variant) -> dict[Mode, SpeedRow]:
    """The rows of a variant without measurements."""
    work = comparison.workload
    shared: dict[str, Any] = {name: getattr(options, name) for name in ("suite", "device", "dtype", "threads")}
    shared |= {name: getattr(work, name) for name in ("kind", "batch", "tokens", "channels", "group_size")}
    shared |= {name: getattr(variant, name) for name in ("method", "way", "name")}
    shared |= {"workload": work.name, "compiled": options.compile, "against": comparison.against.name}
    return {mode: SpeedRow(**shared, mode=mode) for mode in MODES}


def _measure_all_but_time(
    variant: Variant, comparison: SpeedComparison, options: BenchmarkOptions
) -> list[tuple[SpeedRow, Contender | None]]:
    """Build a variant and measure everything but time in each mode. The contender is None if that failed."""
    rows = blank_rows(comparison, options, variant)
    try:
        contender = build(variant, comparison.workload, options)
        facts = _collect_facts(contender, variant, comparison, options)
    except Exception as error:
        return [(failed(row, error), None) for row in rows.values()]
    entries: list[tuple[SpeedRow, Contender | None]] = []
    for mode, row in rows.items():
        for name, value in facts.items():
            setattr(row, name, value)
        try:
            _measure_memory(contender, row, mode, options)
            entries.append((row, contender))
        except Exception as error:
            entries.append((failed(row, error), None))
    return entries


def _collect_facts(
    contender: Contender, variant: Variant, comparison: SpeedComparison, options: BenchmarkOptions
) -> dict[str, Any]:
    """Columns that all modes share: engine, sizes, operations, and whether an operator's values are correct."""
    contender.prepare("inference")
    cost, names = count_operations(contender.first_sample)
    facts: dict[str, Any] = {
        "engine": _find_engine(names, contender, options),
        "softmax_kernel": _softmax_kernel(names),
        "parameters": sum(parameter.numel() for parameter in contender.parameters()),
    }
    if not any(one in name for name in names for one in UNCOUNTED):
        facts |= asdict(cost)
    work = comparison.workload
    if work.kind == "operator" and variant.method != "copy":
        facts["equal"] = torch.equal(contender.infer(), build(comparison.against, work, options).infer())
    return facts


def _find_engine(names: set[str], contender: Contender, options: BenchmarkOptions) -> Engine:
    """The engine, from the operations that a call dispatches."""
    if contender.backend in CUSTOM.values() and "sliceformer_lab::shift_sort" in names:
        return "custom"
    if any(one in name for name in names for one in ("scaled_dot_product", *UNCOUNTED)):
        return "sdpa"
    return "compiled" if options.compile else "plain"


def _softmax_kernel(names: set[str]) -> str:
    """Which kernel torch chose for fused softmax attention: flash, efficient, cudnn; empty without one."""
    found = (re.search(r"_scaled_dot_product_(?:fused_)?(\w+?)_attention", name) for name in names)
    return next((match[1] for match in found if match), "")


def _measure_memory(contender: Contender, row: SpeedRow, mode: Mode, options: BenchmarkOptions) -> None:
    call = contender.prepare(mode)
    call()  # allocates what is set up once
    contender.drop_gradients()  # which belong to a training pass, and would count as memory that was in use before
    memory = PeakMemory(options.device)
    call()
    row.peak_bytes = memory.peak
    if mode == "training":
        row.saved_bytes = saved_bytes(contender.forward, contender.constants())
        row.saved_bytes_per_element = row.saved_bytes / (row.batch * row.tokens * row.channels)


def failed(row: SpeedRow, error: Exception) -> SpeedRow:
    """The row of a variant that failed, with status oom or failed."""
    first = str(error).splitlines()[0] if str(error) else ""
    row.status, row.note = ("oom" if is_want_of_memory(error) else "failed"), f"{type(error).__name__}: {first}"
    return row


def is_want_of_memory(error: Exception) -> bool:
    """Whether memory was too small, of the machine or of a GPU."""
    kinds = (MemoryError, torch.cuda.OutOfMemoryError)
    return isinstance(error, kinds) or any(words in str(error) for words in FULL)
