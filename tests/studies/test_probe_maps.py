"""The tables of the probes are those of the committed cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import probe_maps


def test_every_row_of_the_tables_was_run() -> None:
    found = {(cell["row"], cell["probe"]) for cell in probe_maps.read()}
    main, pairs = (dict.fromkeys(names) for names in (probe_maps.MAIN_ROWS, probe_maps.PAIR_ROWS))
    assert of_table(main, probe_maps.on(probe_maps.PROBES)) - found == probe_maps.TOO_SLOW
    assert of_table(probe_maps.SORT_ROWS, probe_maps.on(probe_maps.SORT_PROBES)) <= found
    assert of_table(probe_maps.HYBRID_ROWS, probe_maps.HYBRID_COLUMNS) <= found
    assert of_table(pairs, probe_maps.PAIR_COLUMNS) <= found
    assert {row for row, probe in found if probe in ("back_far", "words")} >= set(probe_maps.SIZE_ROWS)


def of_table(rows: Mapping[str, Any], columns: probe_maps.Columns) -> set[tuple[str, str]]:
    """Row and probe of each cell of a table."""
    return {(row + suffix, probe) for row in rows for probe, suffix in columns.values()}
