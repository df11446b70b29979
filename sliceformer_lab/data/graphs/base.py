"""The bases of graph data: sets of graphs, and sets of molecules that come as SMILES."""

import logging
import os
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sliceformer_lab.batch import Batch
from sliceformer_lab.config.option_types import Count, Processes
from sliceformer_lab.data.cache import IDENTITY, cached_folder
from sliceformer_lab.data.cached_data import BucketedData
from sliceformer_lab.data.graphs.smiles import (
    ATOM_FEATURES,
    BOND_FEATURES,
    Molecule,
    TooManyAtomsError,
    molecule,
    rdkit_version,
    values_of,
)
from sliceformer_lab.data.graphs.store import NO_GRAPHS, Graph, GraphSplit, GraphStore
from sliceformer_lab.data.loader import Split
from sliceformer_lab.data.parallel import LimitedProcess, in_order, paced
from sliceformer_lab.data.rounding import check_targets
from sliceformer_lab.data.spec import Content, DataSpec
from sliceformer_lab.data.splits import STAGES, Stage, split_rows
from sliceformer_lab.data.strings import Strings
from sliceformer_lab.errors import DataError
from sliceformer_lab.runs.files import write_json

log = logging.getLogger(__name__)

RDKIT_TIMEOUT_S = 60.0  # seconds after which RDKit does not return; most molecules take milliseconds
MOLECULES_PER_CHUNK = 500  # molecules that a process converts at a time
PLACES, SMILES = f"{IDENTITY}places", f"{IDENTITY}smiles"
TOO_LARGE = "has more nodes than data.max_nodes"
TOO_SLOW = "takes RDKit more than"


@dataclass(frozen=True)
class GraphEntry:
    """The entry of a graph in its file."""

    place: str  # in the file, for messages
    name: str  # its SMILES, or empty
    targets: tuple[float, ...]  # NaN for missing ones
    stage: Stage | None = None  # None: `split_seed` chooses


Result = tuple[GraphEntry, Graph | str]  # a graph, or the reason why there is none


@dataclass(kw_only=True, eq=False, repr=False)
class GraphData(BucketedData):
    """Graphs with numbers or labels to predict, which a subclass makes.

    Graphs with more than `max_nodes` nodes are left out and counted. So are graphs that cannot be read, unless
    `invalid=error`, which raises an error at the first of these. A graph that takes too long is always an error: left
    out, it would make the splits depend on the speed of the machine.
    """

    facts_file = "graphs.json"

    max_nodes: Count = 128
    invalid: Literal["skip", "error"] = "skip"
    bucket: bool = False

    @abstractmethod
    def target_names(self) -> tuple[str, ...]:
        """Names of the numbers or labels to predict."""

    @abstractmethod
    def source(self) -> dict[str, Any]:
        """Everything that decides the graphs, files as paths. Raises DataError if a file is missing."""

    @abstractmethod
    def make(self) -> Iterator[Result]:
        """The graphs in the order of the files. Raises DataError."""

    @property
    def versions(self) -> dict[str, str]:
        """The versions of the libraries that decide the graphs of given files, for the key of the cache."""
        return {}

    def _spec(self, name: str, node_values: tuple[int, ...], edge_values: tuple[int, ...]) -> DataSpec:
        """Sizes of graphs with numbers to predict, from the number of values of each feature."""
        return DataSpec(
            name=name,
            targets="numbers",
            num_targets=len(self.target_names()),
            channels=len(node_values),
            node_values=node_values,
            max_len=self.max_nodes,
            ragged=True,
            has_edges=True,
            edge_channels=len(edge_values),
            edge_values=edge_values,
        )

    def split(self, store: GraphStore, rows: np.ndarray) -> GraphSplit:
        return GraphSplit(store, rows=rows)

    def prepare(self) -> Path:
        key = {"title": self.title, "identity": 1, "max_nodes": self.max_nodes, "invalid": self.invalid}
        return cached_folder(self.path, self.title, key | self.versions | self.source(), self._build)

    def _build(self, folder: Path) -> None:
        graphs: list[Graph] = []
        kept: list[GraphEntry] = []
        left_out: Counter[str] = Counter()
        for sample, graph in self.make():
            reason = graph if isinstance(graph, str) else TOO_LARGE if len(graph) > self.max_nodes else None
            if isinstance(graph, Graph) and reason is None:
                kept.append(sample)
                graphs.append(graph)
            elif str(reason).startswith(TOO_SLOW):
                raise DataError(f"{sample.place}: {sample.name!r} {reason}; delete its row, or change data.max_nodes")
            elif self.invalid == "error" and reason != TOO_LARGE:
                raise DataError(f"{sample.place}: {sample.name!r} {reason}; data.invalid=skip leaves it out")
            else:
                left_out[str(reason)] += 1
        if not kept:
            raise DataError(f"{self.title}: none of {left_out.total()} graphs can be used ({_list_counts(left_out)})")
        check_targets(self.title, [sample.targets for sample in kept])
        GraphStore.write(folder, graphs, np.array([sample.targets for sample in kept], dtype=np.float32))
        stages = np.array([-1 if sample.stage is None else STAGES.index(sample.stage) for sample in kept])
        np.save(folder / "stages.npy", stages.astype(np.int8))
        Strings.write(folder, PLACES, (Path(sample.place).name for sample in kept))
        Strings.write(folder, SMILES, (sample.name for sample in kept))
        size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
        write_json(folder / self.facts_file, {"read": len(kept) + left_out.total(), "left_out": dict(left_out)})
        log.info(f"{self.title}: {len(kept):,} graphs of {size / len(kept):.1f} bytes each")

    def remarks(self) -> list[str]:
        found, facts = super().remarks(), self.facts()
        if left_out := Counter(facts["left_out"]):
            found.append(f"{left_out.total():,} of {facts['read']:,} graphs are left out ({_list_counts(left_out)})")
        return found

    def make_splits(self) -> dict[Stage, Split]:
        folder, shares = self.folder, self.held_out_shares(())
        smiles = Strings.open(folder, SMILES) if self.content_kind == "smiles" else None
        store = replace(GraphStore.open(folder), places=Strings.open(folder, PLACES), smiles=smiles)
        rows = split_rows(np.load(folder / "stages.npy"), shares, self.split_seed, self.title)
        return {stage: self.split(store, part) for stage, part in rows.items()}

    def compare_count(self, source: Path, published: int) -> tuple[bool, str]:
        """`is_official` of a set without checksums: whether its files have as many graphs as published."""
        found = self.facts()["read"]  # with those that are left out
        if found == published:
            return True, f"as many graphs as published ({published:,}); no checksums are published"
        return False, f"{source.name} has {found:,} graphs, the published set {published:,}"

    def fingerprint(self) -> dict[str, Any]:
        found = super().fingerprint()
        if left_out := self.facts()["left_out"]:
            found["note"] += f"; left out: {_list_counts(left_out)}"
        return found


@dataclass(kw_only=True, eq=False, repr=False)
class SmilesData(GraphData):
    """Molecules that come as SMILES, which several processes convert to graphs. A subclass reads the samples."""

    content_kind = "smiles"
    takes_new = True

    processes: Processes | None = None

    @property
    def spec(self) -> DataSpec:
        return self._spec(self.title, values_of(ATOM_FEATURES), values_of(BOND_FEATURES))

    @property
    def versions(self) -> dict[str, str]:
        """That of RDKit. Raises DataError if it is not installed."""
        return {"rdkit": rdkit_version()}

    def encode_one(self, content: Content) -> Graph:
        """The graph of a SMILES."""
        found = _graph_in_time(content, self.annotate, self.max_nodes) if isinstance(content, str) else "is not SMILES"
        if isinstance(found, str):
            raise DataError(f"{content!r} {found}")
        return found

    def collate(self, encoded: Sequence[Any]) -> Batch:
        return self.split(NO_GRAPHS, np.arange(0)).collate(list(encoded))

    @abstractmethod
    def samples(self) -> Iterable[GraphEntry]:
        """The molecules in the order of the files. Raises DataError."""

    @property
    @abstractmethod
    def annotate(self) -> Callable[[Molecule], Graph]:
        """Makes the graph of a molecule; a function of a module, so that other processes can run it."""

    def make(self) -> Iterator[Result]:
        samples = list(self.samples())
        smiles = [sample.name for sample in samples]
        chunks = (smiles[i : i + MOLECULES_PER_CHUNK] for i in range(0, len(smiles), MOLECULES_PER_CHUNK))
        build = partial(_make_graphs, annotate=self.annotate, largest=self.max_nodes)
        graphs = chain.from_iterable(in_order(build, chunks, self.processes))
        return zip(samples, paced(graphs, "molecules", len(samples)), strict=True)


def _make_graphs(smiles: Sequence[str], *, annotate: Callable[[Molecule], Graph], largest: int) -> list[Graph | str]:
    return [_graph_in_time(text, annotate, largest) for text in smiles]


def _graph_in_time(smiles: str, annotate: Callable[[Molecule], Graph], largest: int) -> Graph | str:
    found = _time_limited(annotate, largest, RDKIT_TIMEOUT_S, os.getpid())(smiles)
    return f"{TOO_SLOW} {RDKIT_TIMEOUT_S:g} s" if found is None else found


@lru_cache(maxsize=1)
def _time_limited(
    annotate: Callable[[Molecule], Graph], largest: int, seconds: float, process: int
) -> LimitedProcess[str, Graph | str]:
    del process  # a forked process needs one of its own
    return LimitedProcess(partial(_make_graph, annotate=annotate, largest=largest), seconds)


def _make_graph(smiles: str, annotate: Callable[[Molecule], Graph], largest: int) -> Graph | str:
    try:
        parsed = molecule(smiles, largest)
    except TooManyAtomsError:
        return TOO_LARGE
    if parsed is None:
        return "does not parse as SMILES"
    if not len(parsed):
        return "has no atoms"
    return annotate(parsed)


def _list_counts(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{reason}: {count:,}" for reason, count in reasons.items())
