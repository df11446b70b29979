"""Graph data: what every set of graphs shares, and those that come as SMILES."""

import json
import logging
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from sliceformer_lab.data.base import STAGES, DataModule, Positive, Stage
from sliceformer_lab.data.cache import cached, content_digest
from sliceformer_lab.data.graphs.base import Graph, GraphSplit, GraphStore
from sliceformer_lab.data.graphs.smiles import Molecule, molecule
from sliceformer_lab.data.loader import Split
from sliceformer_lab.data.parallel import Pace, in_order
from sliceformer_lab.errors import DataError

log = logging.getLogger(__name__)

CHUNK = 500  # molecules that a process makes at a time
FACTS = "graphs.json"  # in the cache folder: how many were left out and why, and bytes a graph
TOO_LARGE = "has more nodes than data.max_nodes"


@dataclass(frozen=True)
class Sample:
    """A graph as its file names it."""

    place: str  # for messages
    name: str  # its SMILES, where it has one
    targets: tuple[float, ...]  # NaN where one is missing
    stage: Stage | None = None  # None: whichever part `split_seed` puts it in


Made = tuple[Sample, Graph | str]  # a graph, or why there is none


@dataclass(kw_only=True, eq=False, repr=False)
class GraphData(DataModule):
    """Graphs with numbers or labels to predict. A subclass yields them; they are kept in a cache of mapped files.

    Graphs of more than `max_nodes` nodes are left out and counted, as those that cannot be read; `invalid=error` stops
    at the first of the latter.
    """

    title: ClassVar[str]

    root: str
    max_nodes: Positive = 128
    invalid: Literal["skip", "error"] = "skip"
    bucket: bool = True

    @property
    def bucketed(self) -> bool:  # type: ignore[override]
        return self.bucket

    @property
    def path(self) -> Path:
        return Path(self.root).expanduser()

    @property
    def test_share(self) -> float:
        """How many of the graphs without a part of their own are held out to test on."""
        return 0.0

    @abstractmethod
    def target_names(self) -> tuple[str, ...]:
        """What is predicted of a graph."""

    @abstractmethod
    def source(self) -> dict[str, Any]:
        """What the graphs follow from, files by their stamps. Raises DataError if a file is not there."""

    @abstractmethod
    def make(self) -> Iterator[Made]:
        """The graphs in the order of the files. Raises DataError."""

    @abstractmethod
    def is_official(self) -> tuple[bool, str]:
        """Whether what was read is the published set, and how that was found out."""

    def split(self, store: GraphStore, rows: np.ndarray) -> GraphSplit:
        """Rows of a store as a split."""
        return GraphSplit(store, rows)

    def prepare_data(self) -> None:
        """Make the graphs, unless an earlier run has. Raises DataError."""
        self.folder()

    def folder(self) -> Path:
        """The cache folder of the graphs."""
        return self._folder

    @cached_property
    def _folder(self) -> Path:
        key = {"title": self.title, "max_nodes": self.max_nodes, "invalid": self.invalid, **self.source()}
        return cached(self.path, self.title, key, self._build)

    def _build(self, folder: Path) -> None:
        graphs: list[Graph] = []
        kept: list[Sample] = []
        left_out: Counter[str] = Counter()
        for sample, graph in self.make():
            reason = graph if isinstance(graph, str) else TOO_LARGE if len(graph) > self.max_nodes else None
            if isinstance(graph, Graph) and reason is None:
                kept.append(sample)
                graphs.append(graph)
            elif self.invalid == "error" and reason != TOO_LARGE:
                raise DataError(f"{sample.place}: {sample.name!r} {reason}; data.invalid=skip leaves it out")
            else:
                left_out[str(reason)] += 1
        if not kept:
            raise DataError(f"{self.title}: none of {left_out.total()} graphs can be used ({_counted(left_out)})")
        GraphStore.write(folder, graphs, np.array([sample.targets for sample in kept], dtype=np.float32))
        stages = np.array([-1 if sample.stage is None else STAGES.index(sample.stage) for sample in kept])
        np.save(folder / "stages.npy", stages.astype(np.int8))
        size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
        facts = {
            "read": len(kept) + left_out.total(),
            "left_out": dict(left_out),
            "bytes_per_graph": round(size / len(kept), 1),
        }
        (folder / FACTS).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        log.info(f"{self.title}: {len(kept):,} graphs of {facts['bytes_per_graph']} bytes each")
        if left_out:
            log.info(f"{self.title}: {left_out.total():,} graphs are left out ({_counted(left_out)})")

    def make_splits(self) -> dict[Stage, Split]:
        store = GraphStore.open(self.folder())
        order = torch.randperm(len(store), generator=torch.Generator().manual_seed(self.split_seed)).numpy()
        stages = np.load(self.folder() / "stages.npy")[order]
        free = order[stages == -1]
        test, free = np.split(free, [round(self.test_share * len(free))])
        rows = {stage: order[stages == number] for number, stage in enumerate(STAGES)}
        rows["test"] = np.concatenate([rows["test"], test])
        rows["train"] = np.concatenate([rows["train"], free])
        if not len(rows["val"]):
            rows["val"], rows["train"] = np.split(rows["train"], [round(self.val_fraction * len(rows["train"]))])
        shares: dict[Stage, float] = {"val": self.val_fraction, "test": self.test_share}
        for stage, share in shares.items():
            if share and not len(rows[stage]):
                raise DataError(
                    f"{self.title}: holding out {share} of {len(store)} graphs for {stage} takes none; add graphs or "
                    f"change data.{stage}_fraction"
                )
        if not len(rows["train"]):
            raise DataError(f"{self.title}: no graph is left to train on; hold out fewer")
        return {stage: self.split(store, part) for stage, part in rows.items()}

    def target_statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and deviation (T,) of the training targets that are known. Raises DataError if one never is."""
        self.setup()
        split = self.splits["train"]
        if not isinstance(split, GraphSplit):
            raise TypeError(f"{self.title} splits into {type(split).__name__}, not into graphs")
        targets = split.store.targets[split.rows].astype(np.float64)
        if unknown := [
            name for name, column in zip(self.target_names(), targets.T, strict=True) if np.isnan(column).all()
        ]:
            raise DataError(f"{self.title}: no training graph has {', '.join(unknown)}; predict something else")
        std = np.nanstd(targets, axis=0)
        return torch.from_numpy(np.nanmean(targets, axis=0)).float(), torch.from_numpy(
            np.where(std > 0, std, 1)
        ).float()

    def num_read(self) -> int:
        """How many graphs the files hold, those left out included."""
        return int(self._facts()["read"])

    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads((self.folder() / FACTS).read_text(encoding="utf-8"))
        return facts

    def fingerprint(self) -> dict[str, Any]:
        sha256 = content_digest(self.folder())
        official, note = self.is_official()
        left_out = self._facts()["left_out"]
        if left_out:
            note = f"{note}; left out: {_counted(left_out)}"
        return self.identified(sha256, official, note)


@dataclass(kw_only=True, eq=False, repr=False)
class SmilesData(GraphData):
    """Molecules that come as SMILES; many processes make their graphs. A subclass reads the samples."""

    processes: Positive | None = None

    @abstractmethod
    def samples(self) -> Iterable[Sample]:
        """The molecules in the order of the files. Raises DataError."""

    @property
    @abstractmethod
    def annotate(self) -> Callable[[Molecule], Graph]:
        """What is worked out of a molecule: a function of a module, so that other processes can run it."""

    def make(self) -> Iterator[Made]:
        samples = list(self.samples())
        chunks = [samples[i : i + CHUNK] for i in range(0, len(samples), CHUNK)]
        work = [[sample.name for sample in chunk] for chunk in chunks]
        build = partial(_graphs, annotate=self.annotate, largest=self.max_nodes)
        pace = Pace("molecules", len(samples))
        done = 0
        for chunk, graphs in zip(chunks, in_order(build, work, self.processes), strict=True):
            yield from zip(chunk, graphs, strict=True)
            done += len(chunk)
            pace.update(done)


def _graphs(smiles: Sequence[str], *, annotate: Callable[[Molecule], Graph], largest: int) -> list[Graph | str]:
    return [_graph(text, annotate, largest) for text in smiles]


def _graph(smiles: str, annotate: Callable[[Molecule], Graph], largest: int) -> Graph | str:
    made = molecule(smiles)
    if made is None:
        return "does not parse as SMILES"
    if not len(made):
        return "has no atoms"
    return TOO_LARGE if len(made) > largest else annotate(made)


def _counted(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{reason}: {count:,}" for reason, count in reasons.items())
