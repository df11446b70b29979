"""Measures one comparison of whole training steps; runs in its own process and returns rows."""

from __future__ import annotations

import io
import logging
import random
import warnings
from contextlib import redirect_stdout
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch

from sliceformer_lab.commands.benchmark.benchmark_options import BenchmarkOptions
from sliceformer_lab.commands.benchmark.contest import blank_rows, failed
from sliceformer_lab.commands.benchmark.rows import Row, quartiles, set_ratios
from sliceformer_lab.commands.benchmark.training_recipes import (
    LIGHTNING,
    MOST_BATCHES,
    PARTS,
    training_words,
    write_data,
)
from sliceformer_lab.commands.benchmark.training_steps import StepTimes, Training
from sliceformer_lab.commands.benchmark.workloads import Comparison, Variant
from sliceformer_lab.config.checked import check_config
from sliceformer_lab.config.compose import compose_job
from sliceformer_lab.measures.call_cost import PeakMemory
from sliceformer_lab.training.build import build_data
from sliceformer_lab.training.interfaces import DataModule

SKIPPED = 2  # steps of a pass before the measured ones
LEAST_STEPS = 2
SECONDS = 0.5  # that the measured steps of a pass should take

Trainings = dict[str, Training]  # by attention


def run_training_contest(comparison: Comparison, options: BenchmarkOptions) -> list[Row]:
    """A row for every attention and way of training, with its measurements or the reason of its failure."""
    torch.set_num_threads(options.threads)
    logging.disable(logging.WARNING)  # the run's own lines
    warnings.simplefilter("ignore")
    variants = {variant.name: variant for variant in comparison.variants}
    rows = {name: blank_rows(comparison, options, variant)["training"] for name, variant in variants.items()}
    with TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        write_data(comparison.workload, Path(folder))
        trainings = _build(comparison, options, rows, Path(folder))
        ready = [variant for variant in comparison.variants if variant.method in trainings]
        for variant in ready:
            _measure_memory(variant, trainings[variant.method], rows[variant.name], options.device)
        ready = [variant for variant in ready if rows[variant.name].status == "ok"]
        passes = _in_turns(ready, trainings, options)
    for name, times in passes.items():
        _fill(rows[name], times)
    set_ratios(list(rows.values()))
    return list(rows.values())


def _build(comparison: Comparison, options: BenchmarkOptions, rows: dict[str, Row], folder: Path) -> Trainings:
    """The trainings of all attentions on one data module, whose data are read once."""
    trainings: Trainings = {}
    data: DataModule | None = None
    for name in dict.fromkeys(variant.method for variant in comparison.variants):
        here = [row for row in rows.values() if row.method == name]
        try:
            words = training_words(comparison.workload, name, options, folder)
            plan = check_config(compose_job([*words, "hydra.mode=RUN", "hydra.run.dir=unused"]))
            if data is None:
                data = build_data(plan)
                data.prepare_data()
                data.setup()
            trainings[name] = Training(plan, data, folder / "runs" / name)
        except Exception as error:
            for row in here:
                failed(row, error)
            continue
        for row in here:
            row.engine = "compiled" if options.compile else "plain"
            row.parameters = sum(parameter.numel() for parameter in trainings[name].task.parameters())
    return trainings


def _pass(variant: Variant, training: Training, steps: int) -> StepTimes:
    if variant.way == LIGHTNING:
        return training.with_lightning(SKIPPED, steps)
    return training.with_bare_loop(SKIPPED, steps)


def _measure_memory(variant: Variant, training: Training, row: Row, device: str) -> None:
    """The growth of memory over a pass: gradients, the optimiser's state, activations, a batch; without the weights."""
    try:
        training.task.zero_grad()
        _pass(variant, training, 1)  # allocates what is set up once
        training.task.zero_grad()
        memory = PeakMemory(device)
        _pass(variant, training, 1)
        row.peak_bytes = memory.peak
    except Exception as error:
        failed(row, error)


def _in_turns(variants: list[Variant], trainings: Trainings, options: BenchmarkOptions) -> dict[str, list[StepTimes]]:
    """The passes of each variant; in every round all variants take turns, in a random order."""
    generator = random.Random(0)
    first = [_pass(variant, trainings[variant.method], 1) for variant in variants for _ in range(options.warmup)]
    slowest = max((times.seconds for times in first), default=SECONDS)
    steps = min(MOST_BATCHES - SKIPPED, max(LEAST_STEPS, round(SECONDS / slowest)))
    found: dict[str, list[StepTimes]] = {variant.name: [] for variant in variants}
    order = list(variants)
    for _ in range(options.rounds):
        generator.shuffle(order)
        for variant in order:
            found[variant.name].append(_pass(variant, trainings[variant.method], steps))
    return found


def _fill(row: Row, passes: list[StepTimes]) -> None:
    """Medians over rounds; the parts of a step as shares of its time."""
    row.rounds = [times.seconds for times in passes]
    row.cpu_rounds = [times.cpu_seconds for times in passes]
    row.seconds, row.seconds_q1, row.seconds_q3 = quartiles(row.rounds)
    row.cpu_seconds = median(row.cpu_rounds)
    if passes[0].parts:
        row.parts = {part: median(times.parts[part] for times in passes) for part in PARTS}
