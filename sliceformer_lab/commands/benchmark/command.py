"""The command `benchmark`. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path

from hydra.core.utils import env_override
from omegaconf import DictConfig

from sliceformer_lab.cli.command import Command
from sliceformer_lab.cli.jobs import command_options
from sliceformer_lab.commands.benchmark.benchmark_options import SUITES, BenchmarkOptions


def job(cfg: DictConfig, folder: Path) -> None:
    """Validate the options, run the suite and write its files into `folder`. Raises LabError."""
    options = command_options(cfg, BenchmarkOptions, COMMAND.config_name)
    threads = str(options.threads)
    with env_override({"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}):  # read when torch is imported
        from sliceformer_lab.commands.benchmark.run_suite import run

        run(options, folder)


COMMAND = Command(
    word="benchmark",
    summary="Measure speed and memory of the permutation operators, of layers and of encoders.",
    arguments="[-m] [KEY=VALUE ...]",
    examples={
        "suite=layers": "a whole layer of each attention against fused softmax attention",
        "suite=operators sizes=[64,1024]": "the permutation alone, against the published way and a memory copy",
        "suite=layers attentions=[csp,sliceformer,linformer]": "other attentions of conf/attention",
        "suite=encoders batch=1 sizes=[1024,4096] rounds=3": "the text encoder of the Long Range Arena",
        "suite=layers device=cuda dtype=bfloat16 compile=true": "on a GPU, every attention compiled",
        "--cfg job": "print every option with its value",
    },
    sections=lambda: {"Suites (suite=)": {str(name): line for name, line in SUITES.items()}},
    job=job,
)
