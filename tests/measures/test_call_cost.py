"""Time and memory of calls on machines that lack what Linux has."""

from __future__ import annotations

import subprocess
import sys

ON_WINDOWS = """
import sys
import torch
sys.platform = "win32"
sys.modules |= {"resource": None, "fcntl": None}  # an import of them fails
from sliceformer_lab.measures import call_cost
call_cost.proc_bytes = lambda name: None
call_cost.start_new_peak("cpu")
print(call_cost.peak_memory("cpu"), call_cost.PeakMemory("cpu").peak)
"""


def test_windows_measures_calls_and_says_no_peak_of_memory() -> None:
    done = subprocess.run([sys.executable, "-c", ON_WINDOWS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "None None\n"), done.stderr
