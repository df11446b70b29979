"""`python -m sliceformer_lab.study NAME [scale=small] [KEY=VALUE ...]`."""

import sys

from sliceformer_lab.study.command import main

if __name__ == "__main__":
    sys.exit(main())
