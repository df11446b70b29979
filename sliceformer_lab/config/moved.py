"""Names of code in the configurations of older runs, and what they are called now."""

from __future__ import annotations

from typing import Any

# Modules that moved since commit 56d17eb (November 2026), and classes that moved to another one: old -> new.
MOVED = {
    **{f"tasks.{name}": f"sliceformer_lab.tasks.{name}" for name in ("graph", "image", "peptides", "points")},
    **{f"tasks.{name}": f"sliceformer_lab.tasks.{name}" for name in ("retrieval", "sequence")},
    **{f"callbacks.{name}": f"sliceformer_lab.callbacks.{name}" for name in ("checkpoint", "guard", "progress")},
    **{f"callbacks.{name}": f"sliceformer_lab.callbacks.{name}" for name in ("reproducible", "throughput")},
    "callbacks.spectrum": "sliceformer_lab.callbacks.record_spectrum",
    "sliceformer_lab.data.cifar": "sliceformer_lab.data.images.cifar",
    "sliceformer_lab.data.dogs_vs_cats": "sliceformer_lab.data.images.dogs_vs_cats",
    "sliceformer_lab.data.image_folders": "sliceformer_lab.data.images.folders",
    "sliceformer_lab.data.imagenet": "sliceformer_lab.data.images.imagenet",
    "sliceformer_lab.data.mnist": "sliceformer_lab.data.images.mnist",
    "sliceformer_lab.data.small_images": "sliceformer_lab.data.images.small_images",
    "sliceformer_lab.data.imdb": "sliceformer_lab.data.sequences.imdb",
    "sliceformer_lab.data.listops": "sliceformer_lab.data.sequences.listops",
    "sliceformer_lab.data.pathfinder": "sliceformer_lab.data.sequences.pathfinder",
    "sliceformer_lab.data.pixels": "sliceformer_lab.data.sequences.pixels",
    "sliceformer_lab.data.retrieval": "sliceformer_lab.data.sequences.document_pairs",
    "sliceformer_lab.data.text_csv": "sliceformer_lab.data.sequences.text_csv",
    "sliceformer_lab.data.molecule": "sliceformer_lab.data.graphs.molecule",
    "sliceformer_lab.data.molecule.PCQM4M": "sliceformer_lab.data.graphs.pcqm4m.PCQM4M",
    "sliceformer_lab.data.molecule.QM9Gap": "sliceformer_lab.data.graphs.qm9.QM9Gap",
    "sliceformer_lab.data.molecule.ZINC": "sliceformer_lab.data.graphs.zinc.ZINC",
    "sliceformer_lab.data.peptides": "sliceformer_lab.data.graphs.lrgb",
    "sliceformer_lab.data.modelnet": "sliceformer_lab.data.points.modelnet",
    "sliceformer_lab.data.points": "sliceformer_lab.data.points.point_folder",
    "sliceformer_lab.data.shapenet": "sliceformer_lab.data.points.shapenet",
    "sliceformer_lab.encoder.gps": "sliceformer_lab.encoder.gps_block",
    "sliceformer_lab.encoder.mega": "sliceformer_lab.encoder.mega_block",
    "sliceformer_lab.encoder.options": "sliceformer_lab.encoder.encoder_options",
    "sliceformer_lab.encoder.set": "sliceformer_lab.encoder.set_block",
    "sliceformer_lab.loggers": "sliceformer_lab.training.loggers",
    "sliceformer_lab.optim": "sliceformer_lab.training.optim",
    **{
        f"{room}tasks.graph.GraphRegression": "sliceformer_lab.tasks.graph.Graphormer"
        for room in ("", "sliceformer_lab.")
    },
}


def current_target(target: str) -> str:
    """The present dotted name of a class or function that an older version named."""
    module, _, name = target.rpartition(".")
    return MOVED.get(target) or (f"{MOVED[module]}.{name}" if module in MOVED else target)


def with_current_targets(node: Any) -> Any:
    """A saved configuration, or a part of one, with every `_target_` under its present name."""
    if isinstance(node, dict):
        return {
            key: current_target(value) if key == "_target_" and isinstance(value, str) else with_current_targets(value)
            for key, value in node.items()
        }
    return [with_current_targets(part) for part in node] if isinstance(node, list) else node
