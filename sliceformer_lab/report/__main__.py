"""`python -m sliceformer_lab.report FOLDER`."""

import sys

from sliceformer_lab.cli import main
from sliceformer_lab.report.command import REPORT

if __name__ == "__main__":
    sys.exit(main(command=REPORT))
