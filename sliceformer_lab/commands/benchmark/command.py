"""The command `benchmark`. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path

from hydra.core.utils import env_override
from omegaconf import DictConfig

from sliceformer_lab.cli.command import Command
from sliceformer_lab.cli.jobs import command_options, resolve_options
from sliceformer_lab.commands.benchmark.benchmark_options import SUITES, BenchmarkOptions
from sliceformer_lab.config.schema import ConfigError, check_node
from sliceformer_lab.training.results.wandb_names import is_wandb


def job(cfg: DictConfig, folder: Path) -> None:
    """Validate the options, run the suite and write its files into `folder`. Raises LabError."""
    options = command_options(cfg, BenchmarkOptions, COMMAND.config_name, except_node="logger")
    logger = resolve_options(cfg)["logger"]
    if logger and not is_wandb(logger):
        raise ConfigError("logger: a benchmark is sent to W&B only; write logger=wandb, or leave it out")
    threads = str(options.threads)
    with env_override({"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}):  # read when torch is imported
        from sliceformer_lab.commands.benchmark.run_suite import run_benchmark, send_results_of

        if logger:
            check_node(logger, "logger")
        run_benchmark(options, folder)
    if logger:
        send_results_of(folder, logger)


COMMAND = Command(
    word="benchmark",
    summary="Measure speed and memory of the permutation operators and of layers.",
    examples={
        "suite=layers": "a whole layer of each attention against fused softmax attention",
        "suite=operators sizes=[64,1024]": "the permutation alone, against the published way and a memory copy",
        "suite=layers attentions=[csp,sliceformer,linformer]": "other attentions of conf/attention",
        "suite=layers device=cuda dtype=bfloat16 compile=true": "on a GPU, every attention compiled",
        "suite=layers logger=wandb": "send the results to Weights & Biases too",
        "--cfg job": "print every option with its value",
    },
    sections=lambda: {"Suites (suite=)": {str(name): line for name, line in SUITES.items()}},
    job=job,
)
