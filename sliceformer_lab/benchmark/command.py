"""The benchmark's command line: its help, and its one job. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hydra.core.utils import env_override
from omegaconf import DictConfig

from sliceformer_lab.benchmark.options import SUITES, BenchmarkOptions
from sliceformer_lab.cli import Command
from sliceformer_lab.compose import CONF_DIR
from sliceformer_lab.config import construct
from sliceformer_lab.jobs import resolved

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
    program = "python -m sliceformer_lab.benchmark"
    file = (CONF_DIR / f"{CONFIG_NAME}.yaml").read_text(encoding="utf-8")
    options = [line.partition(" # ")[::2] for line in file.splitlines() if line and line[0].isalpha() and " # " in line]
    sections: dict[str, Mapping[str, str]] = {
        "Examples": {f"{program} {words}": said for words, said in EXAMPLES.items()},
        "Suites (suite=)": {str(name): said for name, said in SUITES.items()},
        "Options, and what they are by default": dict(options),
    }
    lines = [
        "Measure speed and memory of the permutation operators, of layers and of encoders, side by side.",
        "",
        f"usage: {program} [-m] [KEY=VALUE ...]",
    ]
    for title, rows in sections.items():
        width = max(map(len, rows)) + 2
        lines += ["", title, *(f"  {left:<{width}}{right}" for left, right in rows.items())]
    return "\n".join(lines)


def job(cfg: DictConfig, folder: Path) -> None:
    """Check the options, run the suite and write its files into `folder`. Raises ConfigError."""
    config = resolved(cfg)
    config.pop("paths")
    node = {"_target_": f"{BenchmarkOptions.__module__}.{BenchmarkOptions.__name__}", **config}
    options: BenchmarkOptions = construct(node, where=CONFIG_NAME)
    threads = str(options.threads)
    with env_override({"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}):  # read when torch is imported
        from sliceformer_lab.benchmark.run import run

        run(options, folder)


BENCHMARK = Command(CONFIG_NAME, help_text, job)
