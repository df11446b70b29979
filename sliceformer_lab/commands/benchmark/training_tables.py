"""The table of whole training steps: time, ratios side by side, the share of each part, and memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table

from sliceformer_lab.commands.benchmark.rows import Row, ratio_between
from sliceformer_lab.commands.benchmark.training_goals import cpu_ratio, find, framework_ratio
from sliceformer_lab.commands.benchmark.training_recipes import BARE, LIGHTNING, PARTS


def training_tables(rows: Sequence[Row]) -> Iterable[Table]:
    """A table for each recipe and number of tokens, with a line for each attention."""
    for name, tokens, batch in dict.fromkeys((row.workload, row.tokens, row.batch) for row in rows):
        here = [row for row in rows if (row.workload, row.tokens) == (name, tokens)]
        title = f"{name}, N={tokens}, batch {batch}: a training step, as median of {len(here[0].rounds)} rounds"
        table = Table("attention", title=title)
        columns = ("ms", "/ mha", "/ identity", "/ bare loop", "/ bare loop (CPU)")
        for column in (*columns, *(f"{part}, %" for part in PARTS), "framework, %", "parameters, M", "peak, MB"):
            table.add_column(column, justify="right")
        for method in dict.fromkeys(row.method for row in here):
            table.add_row(method, *_line(here, method))
        yield table


def _line(rows: Sequence[Row], method: str) -> list[str]:
    lightning, bare = find(rows, method, LIGHTNING), find(rows, method, BARE)
    if lightning is None or bare is None:
        return ["failed"]
    others = [find(rows, other, LIGHTNING) for other in ("mha", "identity")]
    ratios = [None if other is None else ratio_between(lightning, other)[0] for other in others]
    framework = framework_ratio(rows, method) or 1.0
    whole = sum(bare.parts.values()) * framework
    shares = [100 * bare.parts[part] / whole for part in PARTS]
    return [
        f"{1e3 * (lightning.seconds or 0):.4g}",
        *("" if ratio is None else f"{ratio:.3g}" for ratio in ratios),
        f"{framework:.3f}",
        f"{cpu_ratio(rows, method):.3f}",
        *(f"{share:.1f}" for share in (*shares, 100 * (1 - 1 / framework))),
        f"{(lightning.parameters or 0) / 1e6:.3g}",
        "" if lightning.peak_bytes is None else f"{lightning.peak_bytes / 1e6:.4g}",
    ]
