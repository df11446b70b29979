"""`python -m sliceformer_lab`: trains, or runs the command that its first word names."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from sliceformer_lab.cli.main import run_command
from sliceformer_lab.commands.benchmark.command import BENCHMARK
from sliceformer_lab.commands.inspect.command import INSPECT
from sliceformer_lab.commands.report.after_sweep import sweep_compared
from sliceformer_lab.commands.report.command import REPORT
from sliceformer_lab.commands.train.command import TRAIN
from sliceformer_lab.commands.wandb.command import WORKSPACE

TRAIN_AND_COMPARE = replace(TRAIN, after_sweep=sweep_compared)
COMMANDS = {"report": REPORT, "inspect": INSPECT, "benchmark": BENCHMARK, "wandb": WORKSPACE}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; `argv` without the program's name."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words and words[0] in COMMANDS:
        return run_command(COMMANDS[words[0]], words[1:])
    return run_command(TRAIN_AND_COMPARE, words)


if __name__ == "__main__":
    sys.exit(main())
