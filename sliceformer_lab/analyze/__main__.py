"""`python -m sliceformer_lab.analyze ANALYSIS runs=FOLDER`."""

import sys

from sliceformer_lab.analyze.command import ANALYZE
from sliceformer_lab.cli import main

if __name__ == "__main__":
    sys.exit(main(command=ANALYZE))
