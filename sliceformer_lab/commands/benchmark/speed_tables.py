"""The tables that a benchmark prints: all rows, ratios, published numbers and goals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rich.console import Console
from rich.table import Table

from sliceformer_lab.commands.benchmark.goals import Verdict
from sliceformer_lab.commands.benchmark.paper_speeds import MACHINES, published_memory
from sliceformer_lab.commands.benchmark.rows import KINDS, Match, Row, matches
from sliceformer_lab.commands.benchmark.training_tables import training_tables

Value = Callable[[Row], float | None]
PASSES = {"inference": "forward", "training": "forward + backward"}


def print_tables(console: Console, suite: str, rows: Sequence[Row], verdicts: Sequence[Verdict]) -> None:
    """Print all tables of a suite."""
    for workload in dict.fromkeys(row.workload for row in rows if suite != "training"):
        here = [row for row in rows if row.workload == workload]
        _show(console, _times_of(here))
        _show(console, _costs_of(here))
    for failed in (row for row in rows if row.status != "ok"):
        passes = PASSES[failed.mode]
        console.print(f"{failed.status}: {failed.workload}, N={failed.tokens}, {failed.name}, {passes}: {failed.note}")
    if suite == "training":
        for table in training_tables(rows):
            _show(console, table)
    if suite == "lra_speed":
        for table in _table3(rows):
            _show(console, table)
    if suite == "samsa_speed":
        _show(console, _speed_ups(rows))
    for kind in KINDS if suite != "training" else ():
        for table in _matches(kind, [match for match in matches(rows) if match.kind == kind]):
            _show(console, table)
    if verdicts:
        _show(console, _goals(verdicts))


def _show(console: Console, table: Table) -> None:
    """Print a table with its title above it, unwrapped."""
    console.print(f"\n{table.title}", style="bold", markup=False, soft_wrap=True)
    table.title = None
    console.print(table)


def _times_of(rows: Sequence[Row]) -> Table:
    """A line for each variant and length, with both modes."""
    modes = [mode for mode in PASSES if any(row.mode == mode for row in rows)]
    paired = "median and quartiles of ratios within a round" if rows[0].paired else "ratio of medians"
    title = f"{rows[0].workload}: times, and ratios to {rows[0].against} ({paired})"
    table = Table("N", "B", "C", "variant", "engine", title=title)
    for mode in modes:
        table.add_column(f"{PASSES[mode]}, ms", justify="right")
        table.add_column("ratio", justify="right", no_wrap=True)
    for place in _places(rows):
        for both in _variants_at(place, rows):
            first = next(iter(both.values()))
            wrong = " WRONG VALUES" if first.equal is False else ""
            cells = [cell for mode in modes for cell in _times(both[mode])]
            engine = f"{first.engine or ''} {first.softmax_kernel}".strip()
            table.add_row(*map(str, place), first.name + wrong, engine, *cells)
        table.add_section()
    return table


def _costs_of(rows: Sequence[Row]) -> Table:
    """Memory of a batch, and operations of one sample's forward pass."""
    title = f"{rows[0].workload}: memory of a batch, operations of one sample's forward pass"
    table = Table("N", "B", "C", "variant", title=title)
    names = ("peak forward, MB", "peak training, MB", "saved, B/el", "forward, GB/s", "parameters, M")
    for name in (*names, "multiply-adds, M", "comparisons, M", "moves, M"):
        table.add_column(name, justify="right")
    for place in _places(rows):
        for both in _variants_at(place, rows):
            last = list(both.values())[-1]
            peaks = [_scaled(both[mode].peak_bytes) if mode in both else "" for mode in PASSES]
            counts = (last.parameters, last.multiply_adds, last.comparisons, last.moves)
            saved = _short(last.saved_bytes_per_element)
            speeds = [row.bytes_per_second / 1e9 for row in both.values() if row.bytes_per_second]
            bandwidth = _short(speeds[0] if speeds else None)
            table.add_row(*map(str, place), last.name, *peaks, saved, bandwidth, *map(_scaled, counts))
        table.add_section()
    return table


def _places(rows: Sequence[Row]) -> list[tuple[int, int, int]]:
    return list(dict.fromkeys((row.tokens, row.batch, row.channels) for row in rows))


def _variants_at(place: tuple[int, int, int], rows: Sequence[Row]) -> Iterable[dict[str, Row]]:
    """The rows of each variant at a place, by mode."""
    here = [row for row in rows if (row.tokens, row.batch, row.channels) == place]
    for name in dict.fromkeys(row.name for row in here):
        yield {row.mode: row for row in here if row.name == name}


def _times(row: Row) -> tuple[str, str]:
    if row.seconds is None:
        return row.status.upper(), ""
    if row.ratio is None:
        return f"{1e3 * row.seconds:.4g}", ""
    spread = "" if row.ratio_q1 is None else f" ({_short(row.ratio_q1)} - {_short(row.ratio_q3)})"
    return f"{1e3 * row.seconds:.4g}", f"{_short(row.ratio)}{spread}"


def _matches(kind: str, found: Sequence[Match]) -> Iterable[Table]:
    """A table for each workload and mode, with a column for each length."""
    for workload, mode in dict.fromkeys((match.workload, match.mode) for match in found):
        here = [match for match in found if (match.workload, match.mode) == (workload, mode)]
        against = ", ".join(dict.fromkeys(f"{match.against}, {match.against_engine}" for match in here))
        lengths = sorted({match.tokens for match in here})
        table = Table(title=f"{workload}, {PASSES[mode]}: {kind}, ratio to {against}")
        table.add_column("variant", no_wrap=True)
        for length in lengths:
            table.add_column(f"N={length}", justify="right")
        for method in dict.fromkeys(match.name.partition(" (")[0] for match in here):
            cells = {m.tokens: m for m in here if m.name.partition(" (")[0] == method}
            table.add_row(method, *(_cell(cells.get(length)) for length in lengths))
        yield table


def _cell(match: Match | None) -> str:
    return "" if match is None else f"{_short(match.ratio)} {match.engine}"


def _table3(rows: Sequence[Row]) -> Iterable[Table]:
    """Our results in the layout of Sliceformer's Table 3, with the published numbers."""
    lengths = sorted({row.tokens for row in rows})
    columns: dict[str, tuple[str, Value, Value]] = {
        "training steps per second": ("training", _steps, _their_steps),
        "inference steps per second": ("inference", _steps, _their_steps),
        "peak memory of training, GB": ("training", _gigabytes, _their_memory),
    }
    for title, (mode, ours, theirs) in columns.items():
        note = f"in brackets Sliceformer's Table 3, measured on {MACHINES['sliceformer']}"
        table = Table(title=f"{title}; {note}")
        table.add_column("attention", no_wrap=True)
        table.add_column("engine")
        for length in lengths:
            table.add_column(f"N={length}", justify="right")
        for name in dict.fromkeys(row.name for row in rows):
            here = {row.tokens: row for row in rows if (row.name, row.mode) == (name, mode)}
            engine = next((row.engine for row in here.values() if row.engine), None)
            cells = []
            for length in lengths:
                row = here.get(length)
                mine = "" if row is None else row.status.upper() if row.status != "ok" else _short(ours(row))
                printed = "" if row is None else _printed(row, theirs(row))
                cells.append(f"{mine}{printed}")
            table.add_row(name, engine or "", *cells)
        yield table


def _steps(row: Row) -> float | None:
    return None if row.seconds is None else 1 / row.seconds


def _their_steps(row: Row) -> float | None:
    return row.published


def _gigabytes(row: Row) -> float | None:
    return None if row.peak_bytes is None else row.peak_bytes / 1e9


def _their_memory(row: Row) -> float | None:
    found = published_memory(row)
    return None if found is None else found.value


def _printed(row: Row, value: float | None) -> str:
    if not row.published_text:
        return ""
    return f" ({row.published_text.partition(' ')[0] if value is None else f'{value:g}'})"


def _speed_ups(rows: Sequence[Row]) -> Table:
    """Our results in the layout of SAMSA's Table 1."""
    table = Table(
        title=f"inference speed relative to fused softmax attention; SAMSA's Table 1 is from {MACHINES['samsa']}",
    )
    for name in ("tokens", "attention", "engine", "ours", "published"):
        table.add_column(name, justify="left" if name in ("attention", "engine") else "right")
    for row in rows:
        ours = "" if row.ratio is None else f"{1 / row.ratio:.2f} x"
        theirs = "" if row.published is None else f"{row.published:g} x"
        table.add_row(str(row.tokens), row.name, row.engine or "", ours or row.status.upper(), theirs)
    return table


def _goals(verdicts: Sequence[Verdict]) -> Table:
    """The verdict on each goal, and its distance to the limit."""
    met = sum(verdict.met for verdict in verdicts)
    table = Table(title=f"Goals: {met} of {len(verdicts)} met")
    for name in ("", "goal", "column", "limit", "measured", "", "off by"):
        table.add_column(name, justify="right" if name in ("limit", "measured", "off by") else "left")
    for v in verdicts:
        off = v.note if v.off_by is None else f"{100 * v.off_by:+.0f} %"
        table.add_row(v.letter, v.goal, v.column, f"{v.limit:g}", _short(v.measured), "met" if v.met else "MISSED", off)
    return table


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _scaled(count: int | None) -> str:
    """In millions."""
    return "" if count is None else f"{count / 1e6:.4g}"
