"""Lines of results that are compared: they have the declared words and the same data, and each job has one of them.

Results come from several machines and days, so each reader checks them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sliceformer_lab.errors import DataError

Line = Mapping[str, Any]


def check_lines(
    file: Path,
    lines: Sequence[Line],
    job_of: Callable[[Line], Hashable],
    words_of: Callable[[Line], Sequence[str]],
    data_of: Callable[[Line, str], Hashable],
) -> None:
    """Raises DataError for a line with other words than `words_of` it, with other data, or of a job that has a line.

    Lines with an equal `data_of` for a split have the same digest of it.
    """
    jobs: dict[Hashable, int] = {}
    data: dict[Hashable, int] = {}
    for number, line in enumerate(lines, 1):
        where = f"{file}, line {number}"
        if other := sorted(set(line["words"]) ^ set(words_of(line))):
            raise DataError(f"{where}: these words are not those that are declared: {' '.join(other)}")
        if (earlier := jobs.setdefault(job_of(line), number)) != number:
            raise DataError(f"{where}: the job of line {earlier} again; leave one out")
        for split, digest in line["digests"].items():
            same = data.setdefault((data_of(line, split), split), number)
            if digest != lines[same - 1]["digests"][split]:
                raise DataError(f"{where}: other {split} data than in line {same}")
