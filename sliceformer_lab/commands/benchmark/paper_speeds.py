"""The published speeds and memory, which other machines measured."""

from __future__ import annotations

from collections.abc import Iterable

from sliceformer_lab.commands.benchmark.rows import Row
from sliceformer_lab.runs.papers import PublishedCell, PublishedResult, published_results

MACHINES = {
    "sliceformer": "4 x RTX 3090, JAX",
    "samsa": "an unnamed GPU",
}
_VARIANTS = {"sliceformer": "ascend"}  # of Table 3
_STEPS = {"training": "train_steps_per_second", "inference": "inference_steps_per_second"}


def add_published(rows: Iterable[Row]) -> None:
    """Set `published` of rows that a paper prints too: steps per second, or speed-up over softmax."""
    for row in rows:
        found = _cell(row)
        if found is not None:
            row.published = found.value
            row.published_text = f"{found.printed} ({found.cell.paper}, {MACHINES[found.cell.paper]})"


def published_memory(row: Row) -> PublishedResult | None:
    """The peak memory of a training step in Sliceformer's Table 3, in GB."""
    return _table3(row, "peak_memory_gb") if row.mode == "training" else None


def _cell(row: Row) -> PublishedResult | None:
    if row.suite == "lra_speed":
        return _table3(row, _STEPS[row.mode])
    if row.suite == "samsa_speed" and row.method in ("samsa", "mha"):
        variant = row.way if row.method == "samsa" else ""
        task = f"speed_{row.tokens}"
        return published_results().get(PublishedCell("samsa", "table1", task, row.method, variant, "inference_speedup"))
    return None


def _table3(row: Row, metric: str) -> PublishedResult | None:
    variant = _VARIANTS.get(row.method, "")
    task = f"speed_lra_text_{row.tokens}"
    return published_results().get(PublishedCell("sliceformer", "table3", task, row.method, variant, metric))
