"""`python -m sliceformer_lab`."""

import sys

from sliceformer_lab.cli import main

if __name__ == "__main__":
    sys.exit(main())
