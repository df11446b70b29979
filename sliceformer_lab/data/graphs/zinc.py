"""ZINC in the form of torch-geometric."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np

from sliceformer_lab.config.option_types import Count, Natural
from sliceformer_lab.data.graphs.base import GraphEntry, Result
from sliceformer_lab.data.graphs.molecule import MaxNodes
from sliceformer_lab.data.graphs.pyg_files import PygFiles
from sliceformer_lab.data.graphs.shortest_paths import shortest_paths
from sliceformer_lab.data.graphs.store import Graph, GraphSplit, GraphStore
from sliceformer_lab.data.library_sets import unread_set
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.data.splits import STAGES, Stage

ATOM_KINDS, BOND_KINDS = 28, 4


@dataclass(kw_only=True, eq=False, repr=False)
class ZINC(PygFiles):
    """Penalised logP of ZINC molecules with one feature per atom and bond, downloaded and read by torch-geometric.

    `subset` takes the 10,000, 1,000 and 1,000 molecules of benchmarks instead of all 249,456.
    Source: Dwivedi et al. 2020, section on ZINC.
    """

    title = "zinc"

    max_nodes: MaxNodes = 64
    num_hops: Natural = 5
    subset: bool = True
    batch_size: Count = 128

    def target_names(self) -> tuple[str, ...]:
        return ("penalised_logp",)

    @property
    def spec(self) -> DataSpec:
        name = self.title if self.subset else f"{self.title}_full"
        return replace(self._spec(name, (ATOM_KINDS,), (BOND_KINDS,)), num_hops=self.num_hops, needs_bias=True)

    def split(self, store: GraphStore, rows: np.ndarray) -> GraphSplit:
        return GraphSplit(store, self.num_hops, self.plan.pairwise, rows=rows)

    @property
    def set_folder(self) -> Path:
        return self.path / "ZINC"

    def source(self) -> dict[str, Any]:
        return {"subset": self.subset, "files": self.stamps}

    def read_set(self, *, again: bool) -> list[tuple[Stage | None, Any]]:
        from torch_geometric import datasets  # takes seconds to import

        folder = self.set_folder
        first = STAGES[0]  # with which torch-geometric prepares all splits
        try:
            return [
                (stage, datasets.ZINC(str(folder), self.subset, stage, force_reload=again and stage == first))
                for stage in STAGES
            ]
        except (OSError, HTTPException, RuntimeError) as error:
            raise unread_set(error, folder, "torch-geometric", "put its folder raw there") from error

    def make(self) -> Iterator[Result]:
        for stage, part in self.parts:
            for number, graph in enumerate(part):
                edges, bonds = graph.edge_index.numpy().astype(np.int16), graph.edge_attr.numpy().astype(np.uint8)
                pairs = np.stack(shortest_paths(edges, graph.num_nodes), axis=-1)
                made = Graph(graph.x.numpy().astype(np.uint8), edges, bonds[:, None], pairs)
                yield GraphEntry(f"{stage} graph {number}", "", (float(graph.y),), stage), made

    def is_official(self) -> tuple[bool, str]:
        return self.compare_count(self.set_folder, 12_000 if self.subset else 249_456)
