"""PCQM4M's HOMO-LUMO gap, in both versions."""

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from sliceformer_lab.config.option_types import Count, Workers
from sliceformer_lab.data.cache import by_name
from sliceformer_lab.data.download import OfficialFile, fetch_unpacked
from sliceformer_lab.data.graphs.base import GraphEntry
from sliceformer_lab.data.graphs.molecule import MoleculeData
from sliceformer_lab.data.splits import Stage
from sliceformer_lab.data.table_files import field_of, number_of, table_rows
from sliceformer_lab.errors import DataError


@dataclass(kw_only=True, eq=False, repr=False)
class PCQM4M(MoleculeData):
    """The HOMO-LUMO gap in eV of the 3.7 million molecules of PCQM4Mv2, or of the first version.

    Reads raw/data.csv.gz and split_dict.pt in root/pcqm4m-v2, which is downloaded, or with version=1 in
    root/pcqm4m_kddcup2021, which is no longer published. The gaps of the test molecules are secret, so these are left
    out; papers report validation metrics of the epoch that they choose by validation.
    """

    title = "pcqm4m"
    published: ClassVar[OfficialFile] = OfficialFile(
        "https://dgl-data.s3-accelerate.amazonaws.com/dataset/OGB-LSC/pcqm4m-v2.zip", "", 59_000_000
    )
    folders: ClassVar[dict[int, str]] = {1: "pcqm4m_kddcup2021", 2: "pcqm4m-v2"}
    published_counts: ClassVar[dict[int, int]] = {1: 3_045_360 + 380_670, 2: 3_378_606 + 73_545}  # with a known gap

    version: Literal[1, 2] = 2
    batch_size: Count = 256
    num_workers: Workers = 4
    download: bool = True

    def target_names(self) -> tuple[str, ...]:
        return ("homolumogap",)

    @cached_property
    def _files(self) -> tuple[Path, Path]:
        """The table and the file of splits."""
        folder = self.path / self.folders[self.version]
        if self.version == 2:
            fetch_unpacked(self.published, self.path, folder.name, download=self.download, check=False)
        files = folder / "raw" / "data.csv.gz", folder / "split_dict.pt"
        for file in files:
            if not file.is_file():
                raise DataError(f"{file} is missing; copy {folder.name} of the official archive to {self.path}")
        return files

    def source(self) -> dict[str, Any]:
        return {"files": by_name(list(self._files))}

    def samples(self) -> Iterator[GraphEntry]:
        table, split = self._files
        stages = self._stages(split)
        last = -1
        for last, (place, row) in enumerate(table_rows(table)):
            if stage := stages.get(last):
                gap = number_of(place, "homolumogap", field_of(place, row, "homolumogap", "root"))
                yield GraphEntry(place, str(field_of(place, row, "smiles", "root")), (gap,), stage)
        if stages and last < max(stages):
            raise DataError(f"{split} names molecule {max(stages)}, but {table} has {last + 1}; use files of one set")

    def _stages(self, file: Path) -> dict[int, Stage]:
        """The split of each row of the table. Raises DataError unless the file holds arrays of positions."""
        arrays: list[Any] = [np.empty(0).__reduce__()[0], np.ndarray, np.dtype, type(np.dtype(np.int64))]
        try:
            with torch.serialization.safe_globals(arrays):
                split = torch.load(file, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
            raise DataError(f"{file} is damaged or holds more than arrays; nothing of it was run") from error
        parts: dict[str, Stage] = {"train": "train", "valid": "val"}
        if not isinstance(split, Mapping) or not set(parts) <= set(split):
            raise DataError(f"{file} is not a file of splits: expected arrays of positions named {', '.join(parts)}")
        return {int(row): stage for name, stage in parts.items() for row in np.asarray(split[name]).ravel()}

    def is_official(self) -> tuple[bool, str]:
        return self.compare_count(self._files[0], self.published_counts[self.version])
