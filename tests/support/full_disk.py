"""Short runs whose n-th write fails, all in one process with full_disk.c preloaded."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

SHORT = (
    "attention=mha",
    "encoder=tiny",
    "encoder.depth=1",
    "callbacks.spectrum.num_samples=4",
    "data.limit_train=32",
    "data.limit_eval=16",
    "data.batch_size=32",
    "optim.epochs=2",
    "pictures=false",
    "reference=null",
)


@dataclass(frozen=True)
class Ending:
    """How a run ended whose n-th write failed."""

    nth: int
    stays_full: bool
    folder: str
    code: int
    said: str  # on the terminal


def endings(folder: Path) -> Iterator[Ending]:
    """A run in which no write fails (nth 0), and a run for each of its writes, which fails.

    It fails once; for every third write there is a second run, in which all later ones fail, too.
    """
    library, source = folder / "full_disk.so", Path(__file__).with_suffix(".c")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    runs = subprocess.Popen(
        [sys.executable, "-m", "support.full_disk", str(folder)],
        env=os.environ | {"LD_PRELOAD": str(library), "PYTHONPATH": str(Path(__file__).parents[1])},
        stdout=subprocess.PIPE,
        text=True,
    )
    with runs:
        for line in runs.stdout:
            yield Ending(**json.loads(line))
    assert runs.returncode == 0


def _run(folder: Path, nth: int, stays_full: bool) -> tuple[Ending, int]:
    """The ending of a run and the number of its writes."""
    from sliceformer_lab.__main__ import main

    disk, said = ctypes.CDLL(None), io.StringIO()
    disk.disk_arm(str(folder).encode(), nth, int(stays_full), errno.ENOSPC)
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main([*SHORT, f"hydra.run.dir={folder}"])
    count = disk.disk_count()
    disk.disk_arm(b"", 0, 0, 0)
    return Ending(nth, stays_full, str(folder), code, said.getvalue()), count


def _print_endings(folder: Path) -> None:
    ending, count = _run(folder / "whole", 0, False)
    print(json.dumps(asdict(ending)), flush=True)  # noqa: T201
    writes = range(1, count + 1)
    for nth, stays_full in [*((nth, False) for nth in writes), *((nth, True) for nth in writes[::3])]:
        ending, _ = _run(folder / f"{nth}-{stays_full}", nth, stays_full)
        print(json.dumps(asdict(ending)), flush=True)  # noqa: T201


if __name__ == "__main__":
    _print_endings(Path(sys.argv[1]))
