"""Numbers to learn that differ too little for 32 bits are refused in every kind of a user's data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.plans import built_data

from sliceformer_lab.data.base import DataModule
from sliceformer_lab.data.rounding import check_targets
from sliceformer_lab.errors import DataError

SECONDS = [1_700_000_000 + number for number in range(60)]  # of Unix time, within one minute
OPTIONS: dict[str, dict[str, Any]] = {
    "sequences.text_csv.TextCSV": {"root": "cache", "vocab_size": 300, "targets": ["t"]},
    "images.image_table.ImageTable": {"root": ".", "image_size": 16, "image_column": "text", "targets": ["t"]},
    "graphs.molecule.MoleculeTable": {"root": "cache", "smiles_column": "smiles", "targets": ["t"]},
    "series.series_csv.SeriesTable": {"root": "cache", "label_column": "t", "value_columns": ["x", "y"]},
}


def data_with_targets(folder: Path, kind: str, targets: list[int]) -> DataModule:
    Image.fromarray(np.zeros((16, 16), np.uint8)).save(folder / "a.png")
    rows = [f"a.png,{'C' * (1 + number)},{number},{number % 7},{target}" for number, target in enumerate(targets)]
    (folder / "table.csv").write_text("\n".join(["text,smiles,x,y,t", *rows]))
    options = OPTIONS[kind] | {"file": str(folder / "table.csv")}
    options["root"] = str(folder / options["root"])
    return built_data(kind, **options)


@pytest.mark.parametrize("kind", OPTIONS)
def test_numbers_to_learn_that_32_bits_would_make_equal_are_refused(kind: str, tmp_path: Path) -> None:
    if "molecule" in kind:
        pytest.importorskip("rdkit")
    with pytest.raises(DataError, match=r"(t|target 1) has values from 1700000000 to 1700000059, .*subtract an offset"):
        data_with_targets(tmp_path, kind, SECONDS)
    learned = data_with_targets(tmp_path, kind, [second - SECONDS[0] for second in SECONDS]).training_targets()
    assert len(learned.unique()) == len(learned)


def test_constant_missing_and_no_numbers_to_learn_are_all_right() -> None:
    check_targets("table", [(1_700_000_000.0, 0.1), (np.nan, 0.1)])
    check_targets("table", [(np.nan,)])
    check_targets("table", [])
    with pytest.raises(DataError, match=r"^table: seconds has values"):
        check_targets("table", [(0.0, second) for second in SECONDS], ("none", "seconds"))
