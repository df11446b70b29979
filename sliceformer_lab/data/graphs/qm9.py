"""QM9's HOMO-LUMO gap."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from sliceformer_lab.config.option_types import Fraction
from sliceformer_lab.data.cache import by_name
from sliceformer_lab.data.download import OfficialFile, fetch
from sliceformer_lab.data.graphs.base import GraphEntry
from sliceformer_lab.data.graphs.molecule import MaxNodes, MoleculeData
from sliceformer_lab.data.table_files import field_of, number_of, table_rows

HARTREE = 27.211386245988  # eV, CODATA 2018


@dataclass(kw_only=True, eq=False, repr=False)
class QM9Gap(MoleculeData):
    """The HOMO-LUMO gap in eV of the 133,885 small molecules of QM9, or of a subset.

    Reads root/molecules/qm9_gap.csv.gz (SMILES, gap in eV) if it exists. Otherwise it downloads MoleculeNet's table to
    root/qm9/qm9.csv, which has the gap in Hartree. The set has no published splits, so `split_seed` draws them.
    """

    title = "qm9_gap"
    published: ClassVar[OfficialFile] = OfficialFile(
        "https://deepchemdata.s3-us-west-1.amazonaws.com/datasets/qm9.csv",
        "3e668f8c34e4bc392a90d417a50a5eed3b64b842a817a633024bdc054c68ccb4",
        29_856_825,
    )
    published_count: ClassVar[int] = 133_885

    max_nodes: MaxNodes = 32
    download: bool = True
    test_fraction: Fraction = 0.1

    @property
    def test_share(self) -> float:
        return self.test_fraction

    @property
    def part(self) -> Path:
        return self.path / "molecules" / "qm9_gap.csv.gz"

    def target_names(self) -> tuple[str, ...]:
        return ("gap",)

    def source(self) -> dict[str, Any]:
        return {"files": by_name([self._table])}

    @cached_property
    def _table(self) -> Path:
        if self.part.is_file():
            return self.part
        return fetch(self.published, self.path / "qm9", download=self.download, check=False)

    def samples(self) -> Iterator[GraphEntry]:
        smiles, unit = ("SMILES", 1.0) if self._table == self.part else ("smiles", HARTREE)
        for place, row in table_rows(self._table):
            gap = number_of(place, "gap", field_of(place, row, "gap", "root"))
            yield GraphEntry(place, str(field_of(place, row, smiles, "root")), (gap * unit,))

    def is_official(self) -> tuple[bool, str]:
        return self.compare_count(self._table, self.published_count)
