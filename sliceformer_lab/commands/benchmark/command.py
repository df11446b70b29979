"""The benchmark's command line: its help, and its one job. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path

from hydra.core.utils import env_override
from omegaconf import DictConfig

from sliceformer_lab.cli.help import page, root_options
from sliceformer_lab.cli.jobs import command_options
from sliceformer_lab.cli.main import Command
from sliceformer_lab.commands.benchmark.benchmark_options import SUITES, BenchmarkOptions

CONFIG_NAME = "benchmark"
EXAMPLES = {
    "suite=layers": "a whole layer of each attention against fused softmax attention",
    "suite=operators sizes=[64,1024]": "the permutation alone, against the published way and a memory copy",
    "suite=layers attentions=[csp,sliceformer,linformer]": "other attentions of conf/attention",
    "suite=lra_speed batch=2 sizes=[1000,2000]": "Sliceformer's Table 3, in a batch that a CPU can do",
    "suite=layers device=cuda dtype=bfloat16 compile=true": "on a GPU, every attention compiled",
    "suite=goals": "the speeds that this version promises, met or missed",
    "--cfg job": "print every option with its value",
}


def help_text() -> str:
    """Example commands, suites, and every option with its default."""
    program = "python -m sliceformer_lab benchmark"
    sections = {
        "Examples": {f"{program} {words}": said for words, said in EXAMPLES.items()},
        "Suites (suite=)": {str(name): said for name, said in SUITES.items()},
        "Options, and what they are by default": root_options(CONFIG_NAME),
    }
    said = "Measure speed and memory of the permutation operators, of layers and of encoders, side by side."
    return page(said, f"{program} [-m] [KEY=VALUE ...]", sections)


def job(cfg: DictConfig, folder: Path) -> None:
    """Check the options, run the suite and write its files into `folder`. Raises ConfigError."""
    options = command_options(cfg, BenchmarkOptions, CONFIG_NAME)
    threads = str(options.threads)
    with env_override({"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}):  # read when torch is imported
        from sliceformer_lab.commands.benchmark.suite import run

        run(options, folder)


BENCHMARK = Command(CONFIG_NAME, help_text, job)
