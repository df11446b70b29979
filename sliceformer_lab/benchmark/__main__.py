"""`python -m sliceformer_lab.benchmark`."""

import sys

from sliceformer_lab.benchmark.command import BENCHMARK
from sliceformer_lab.cli import main

if __name__ == "__main__":
    sys.exit(main(command=BENCHMARK))
