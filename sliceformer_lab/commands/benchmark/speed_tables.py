"""The tables that a benchmark prints: all rows, and ratios."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table

from sliceformer_lab.commands.benchmark.rows import SpeedRow
from sliceformer_lab.runs.plain_text import PlainConsole
from sliceformer_lab.runs.printed_table import print_table

PASSES = {"inference": "forward", "training": "forward + backward"}


def print_speed_tables(rows: Sequence[SpeedRow]) -> None:
    """Print all tables of a suite."""
    for workload in dict.fromkeys(row.workload for row in rows):
        here = [row for row in rows if row.workload == workload]
        for table in (_times_of(here), _costs_of(here)):
            print_table(table, num_names=4)
    for failed in (row for row in rows if row.status != "ok"):
        where = f"{failed.workload}, N={failed.tokens}, {failed.name}, {PASSES[failed.mode]}"
        PlainConsole().print(f"{failed.status}: {where}: {failed.note}")


def _times_of(rows: Sequence[SpeedRow]) -> Table:
    """A line for each variant and length, with both modes."""
    modes = [mode for mode in PASSES if any(row.mode == mode for row in rows)]
    title = (
        f"{rows[0].workload}: times, and ratios to {rows[0].against} (median and quartiles of ratios within a round)"
    )
    table = Table("N", "B", "C", "variant", "engine", title=title)
    for mode in modes:
        table.add_column(f"{PASSES[mode]}, ms", justify="right")
        table.add_column("ratio", justify="right")
    for place in _list_places(rows):
        for both in _variants_at(place, rows):
            first = next(iter(both.values()))
            wrong = " WRONG VALUES" if first.equal is False else ""
            cells = [cell for mode in modes for cell in _format_times(both[mode])]
            engine = f"{first.engine or ''} {first.softmax_kernel}".strip()
            table.add_row(*map(str, place), first.name + wrong, engine, *cells)
        table.add_section()
    return table


def _costs_of(rows: Sequence[SpeedRow]) -> Table:
    """Memory of a batch, and operations of one sample's forward pass."""
    title = f"{rows[0].workload}: memory of a batch, operations of one sample's forward pass"
    table = Table("N", "B", "C", "variant", title=title)
    names = ("peak forward, MB", "peak training, MB", "saved, B/el", "forward, GB/s", "parameters, M")
    for name in (*names, "multiply-adds, M", "comparisons, M", "moves, M"):
        table.add_column(name, justify="right")
    for place in _list_places(rows):
        for both in _variants_at(place, rows):
            last = list(both.values())[-1]
            peaks = [_format_millions(both[mode].peak_bytes) if mode in both else "" for mode in PASSES]
            counts = (last.parameters, last.multiply_adds, last.comparisons, last.moves)
            saved = _format_number(last.saved_bytes_per_element)
            speeds = [row.bytes_per_second / 1e9 for row in both.values() if row.bytes_per_second]
            bandwidth = _format_number(speeds[0] if speeds else None)
            table.add_row(*map(str, place), last.name, *peaks, saved, bandwidth, *map(_format_millions, counts))
        table.add_section()
    return table


def _list_places(rows: Sequence[SpeedRow]) -> list[tuple[int, int, int]]:
    return list(dict.fromkeys((row.tokens, row.batch, row.channels) for row in rows))


def _variants_at(place: tuple[int, int, int], rows: Sequence[SpeedRow]) -> Iterable[dict[str, SpeedRow]]:
    """The rows of each variant at a place, by mode."""
    here = [row for row in rows if (row.tokens, row.batch, row.channels) == place]
    for name in dict.fromkeys(row.name for row in here):
        yield {row.mode: row for row in here if row.name == name}


def _format_times(row: SpeedRow) -> tuple[str, str]:
    if row.seconds is None:
        return row.status.upper(), ""
    if row.ratio is None:
        return f"{1e3 * row.seconds:.4g}", ""
    spread = "" if row.ratio_q1 is None else f" ({_format_number(row.ratio_q1)} - {_format_number(row.ratio_q3)})"
    return f"{1e3 * row.seconds:.4g}", f"{_format_number(row.ratio)}{spread}"


def _format_number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _format_millions(count: int | None) -> str:
    """In millions."""
    return "" if count is None else f"{count / 1e6:.4g}"
