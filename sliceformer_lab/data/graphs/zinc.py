"""ZINC in the form of torch-geometric."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from http.client import HTTPException
from typing import Any

import numpy as np

from sliceformer_lab.config.option_types import Count, Natural
from sliceformer_lab.data.graphs.base import GraphData, GraphEntry, Result
from sliceformer_lab.data.graphs.molecule import MaxNodes
from sliceformer_lab.data.graphs.shortest_paths import shortest_paths
from sliceformer_lab.data.graphs.store import Graph, GraphSplit, GraphStore
from sliceformer_lab.data.library_sets import unread_set
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.data.splits import STAGES

ATOM_KINDS, BOND_KINDS = 28, 4


@dataclass(kw_only=True, eq=False, repr=False)
class ZINC(GraphData):
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

    def source(self) -> dict[str, Any]:
        return {"subset": self.subset}

    def make(self) -> Iterator[Result]:
        from torch_geometric import datasets  # takes seconds to import

        for stage in STAGES:
            try:
                part = datasets.ZINC(str(self.path / "ZINC"), subset=self.subset, split=stage)
            except (OSError, HTTPException, RuntimeError) as error:
                raise unread_set(error, self.path / "ZINC", "torch-geometric", "put its folder raw there") from error
            for number, graph in enumerate(part):
                edges, bonds = graph.edge_index.numpy().astype(np.int16), graph.edge_attr.numpy().astype(np.uint8)
                pairs = np.stack(shortest_paths(edges, graph.num_nodes), axis=-1)
                made = Graph(graph.x.numpy().astype(np.uint8), edges, bonds[:, None], pairs)
                yield GraphEntry(f"{stage} graph {number}", "", (float(graph.y),), stage), made

    def is_official(self) -> tuple[bool, str]:
        return self.compare_count(self.path / "ZINC", 12_000 if self.subset else 249_456)
