"""The command line of scripts that write a page from collected runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from sliceformer_lab.errors import LabError


def collect_or_write(usage: str | None, collect: Callable[[Iterable[Path]], None], write: Callable[[], None]) -> None:
    """Write the page; after `collect FOLDER...`, add the runs of these folders first. Other words show the usage."""
    match sys.argv[1:]:
        case ["collect", *folders] if folders:
            try:
                collect(map(Path, folders))
            except LabError as error:
                sys.exit(str(error))
        case []:
            pass
        case _:
            sys.exit(usage)
    write()
