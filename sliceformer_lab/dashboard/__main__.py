"""`python -m sliceformer_lab.dashboard`."""

import sys

from sliceformer_lab.cli import main
from sliceformer_lab.dashboard.command import DASHBOARD

if __name__ == "__main__":
    sys.exit(main(command=DASHBOARD))
