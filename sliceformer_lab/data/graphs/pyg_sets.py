"""Any set of graphs of torch-geometric that fits in memory, by the name of its class."""

import inspect
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from http.client import HTTPException
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from sliceformer_lab.config.option_types import Count, Fraction, Natural
from sliceformer_lab.data.graphs.base import GraphEntry, Result
from sliceformer_lab.data.graphs.feature_bins import BinnedSplit, Encoded, num_read, with_bins
from sliceformer_lab.data.graphs.pyg_files import PygFiles
from sliceformer_lab.data.graphs.store import Graph, GraphSplit, GraphStore, NodeLimit
from sliceformer_lab.data.library_sets import LibraryData, unread_set
from sliceformer_lab.data.loader import Split
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.data.splits import STAGES, Stage
from sliceformer_lab.errors import DataError
from sliceformer_lab.runs.files import write_json

SIZES = "sizes.json"  # in the cache folder: values of features, and what the targets are


@dataclass(kw_only=True, eq=False, repr=False)
class PygData(PygFiles, LibraryData):
    """The set that torch-geometric's class `dataset` downloads and reads, with its own splits where it has them.

    `name` is that argument of classes that hold many sets, such as TUDataset; `options` are further keywords.
    A feature of a node or an edge becomes a number for each of its values, a one-hot block one feature, and a feature
    of more than MAX_VALUES values at most NUM_BINS bins of equal size among the training graphs. Whole numbers as
    targets are classes, if a graph has one; 0, 1 and NaN as floating-point numbers are labels, others numbers.
    `targets` picks some by their place.
    torch-geometric unpickles what it has prepared in `root`, so use no prepared files of strangers.
    """

    title = "pyg"
    library = "torch_geometric.datasets"

    name: str | None = None
    targets: tuple[Natural, ...] | None = None
    test_fraction: Fraction = 0.1
    max_nodes: NodeLimit = 512
    batch_size: Count | None = None

    _sizes: dict[str, Any] = field(init=False, default_factory=dict)

    @property
    def test_share(self) -> float:
        return self.test_fraction

    @property
    def spec(self) -> DataSpec:
        """Reads the graphs. Raises DataError."""
        sizes, name = self._recorded, "-".join(part for part in (self.dataset, self.name) if part)
        values = (tuple(map(num_read, sizes[part])) for part in ("node_values", "edge_values"))
        numbers = self._spec(name, *values)
        return replace(numbers, targets=sizes["targets"], num_classes=sizes["num_classes"])

    def target_names(self) -> tuple[str, ...]:
        return tuple(self._recorded["target_names"])

    def is_official(self) -> tuple[None, str]:
        return None, "torch-geometric does not say whether these are the published files; sha256 is of the graphs"

    def source(self) -> dict[str, Any]:
        chosen = None if self.targets is None else list(self.targets)
        named = {"dataset": self.dataset, "name": self.name, "options": self.options, "targets": chosen}
        return named | {"split_by": self._split_option, "bins": "by split", "files": self.stamps}

    def split(self, store: GraphStore, rows: np.ndarray) -> GraphSplit:
        """Classes are kept as the only target of a graph."""
        if self._recorded["targets"] == "class" and store.targets.ndim == 2:
            store = replace(store, targets=store.targets[:, 0].astype(np.int64))
        return GraphSplit(store, rows=rows)

    def make_splits(self) -> dict[Stage, Split]:
        splits = cast(dict[Stage, GraphSplit], super().make_splits())
        return dict(with_bins(splits, self._recorded["node_values"], self._recorded["edge_values"]))

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"features": self._numbered}

    def check_encoding(self, state_dict: Mapping[str, Any]) -> None:
        if state_dict.get("features", self._recorded["numbered"]) != self._numbered:  # which the first runs have not
            raise DataError(
                f"data.dataset={self.dataset}: its features have other values than those that the checkpoint was "
                "trained on, or other bins; use the same files and splits"
            )

    @property
    def _numbered(self) -> list[str]:
        """What the numbers of features stand for, by digests."""
        self.setup()
        train = self.splits["train"]
        return [*self._recorded["numbered"], *([train.digest_of_bins] if isinstance(train, BinnedSplit) else [])]

    @cached_property
    def _recorded(self) -> dict[str, Any]:
        sizes: dict[str, Any] = json.loads((self.folder / SIZES).read_text(encoding="utf-8"))
        return sizes

    def _build(self, folder: Path) -> None:
        super()._build(folder)
        write_json(folder / SIZES, self._sizes)

    def make(self) -> Iterator[Result]:
        graphs = [(stage, number, graph) for stage, part in self.parts for number, graph in enumerate(part)]
        self._check(graphs)
        targets = self._targets([graph.y for *_, graph in graphs])
        nodes = Encoded.of([_features_of(graph.x, graph.num_nodes) for *_, graph in graphs])
        edges = Encoded.of([_features_of(graph.edge_attr, graph.edge_index.shape[1]) for *_, graph in graphs])
        self._sizes |= {"node_values": list(nodes.values), "edge_values": list(edges.values)}
        self._sizes["numbered"] = [nodes.digest, edges.digest]
        first_node = np.cumsum([0, *(graph.num_nodes for *_, graph in graphs)])
        first_edge = np.cumsum([0, *(graph.edge_index.shape[1] for *_, graph in graphs)])
        for row, (stage, number, graph) in enumerate(graphs):
            made = Graph(
                nodes.numbers[first_node[row] : first_node[row + 1]],
                graph.edge_index.numpy().astype(np.int16),
                edges.numbers[first_edge[row] : first_edge[row + 1]],
            )
            place = f"{stage} graph {number}" if stage else f"graph {number}"
            yield GraphEntry(place, "", tuple(targets[row].tolist()), stage), made

    @property
    def set_folder(self) -> Path | None:
        if "root" not in self._takes:
            return None
        folder, name = Path(self._root["root"]).expanduser(), (self.name or "").lower()
        return next((inner for inner in sorted(folder.glob("*")) if inner.name.lower() == name), folder)

    def read_set(self, *, again: bool) -> list[tuple[Stage | None, Any]]:
        anew = {"force_reload": True} if again and "force_reload" in self._takes else {}
        if self._split_option == "split":
            return [(stage, self._build_set(split=stage, **anew)) for stage in STAGES]
        if self._split_option == "train":
            return [("train", self._build_set(train=True, **anew)), ("test", self._build_set(train=False, **anew))]
        return [(None, self._build_set(**anew))]

    @property
    def _root(self) -> dict[str, str]:
        return {"root": str((self.options or {}).get("root", self.path / self.dataset))}

    @property
    def _takes(self) -> Collection[str]:
        """The keywords of the class."""
        return inspect.signature(self.library_class.__init__).parameters.keys()

    @property
    def _split_option(self) -> str | None:
        """The keyword by which the class gives its own splits, unless data.options choose one."""
        free = set(self._takes) - set(self.options or {})
        return next((name for name in ("split", "train") if name in free), None)

    def _build_set(self, **split: str | bool) -> Any:
        root = self._root if "root" in self._takes else {}
        name = {} if self.name is None else {"name": self.name}
        try:
            return self.library_class(**{**root, **name, **(self.options or {}), **split})
        except (OSError, HTTPException, RuntimeError) as error:
            folder = self.path / self.dataset / (self.name or "")
            raise unread_set(error, folder, "torch-geometric", "put its folder raw there") from error
        except Exception as error:  # of any kind: each class has its own checks
            raise DataError(
                f"data.dataset={self.dataset}: {type(error).__name__}: {error}; data.name is its argument name, "
                "data.options its further keywords"
            ) from error

    def _check(self, graphs: Sequence[tuple[Stage | None, int, Any]]) -> None:
        """Raises DataError for anything that is not a set of graphs with targets and edges."""
        wrong = next((graph for *_, graph in graphs if getattr(graph, "y", None) is None), None)
        if len(graphs) < 3 or wrong is not None or not hasattr(graphs[0][2], "edge_index"):
            found = "no targets" if wrong is not None else f"{len(graphs)} graphs"
            raise DataError(
                f"data.dataset={self.dataset} has {found}; only sets of many graphs with edges and targets can be used"
            )
        sizes = [(graph.y.shape[:1].numel(), graph.num_nodes) for *_, graph in graphs]  # rows of the targets, and nodes
        if max(sizes) > (1, 1) and all(rows == nodes for rows, nodes in sizes):
            raise DataError(f"data.dataset={self.dataset} has a target for each node; only those of graphs can be used")

    def _targets(self, found: Sequence[torch.Tensor]) -> np.ndarray:
        """The targets (n, T); records what they are. Raises DataError."""
        values = np.stack([target.reshape(-1).numpy() for target in found])
        if self.targets is not None:
            if any(place >= values.shape[1] for place in self.targets):
                raise DataError(
                    f"data.targets={list(self.targets)}, but a graph has the targets 0 to {values.shape[1] - 1}"
                )
            values = values[:, list(self.targets)]
        if values.shape[1] == 1 and np.issubdtype(values.dtype, np.integer):
            if values.min() < 0:
                raise DataError(f"data.dataset={self.dataset} has the class {values.min()}; classes count from 0")
            kind, names, count = "class", [], int(values.max()) + 1
        else:
            places = self.targets if self.targets is not None else range(values.shape[1])
            are_labels = ((values == 0) | (values == 1) | np.isnan(values)).all()
            kind, names, count = "labels" if are_labels else "numbers", [f"target_{place}" for place in places], 0
        self._sizes = {"targets": kind, "target_names": names, "num_classes": count, "num_targets": len(names)}
        return values.astype(np.float32)


def _features_of(features: torch.Tensor | None, count: int) -> np.ndarray:
    """The features (count, F) of nodes or edges; those without any have one that is 0."""
    return np.zeros((count, 1)) if features is None else features.reshape(count, -1).numpy()
