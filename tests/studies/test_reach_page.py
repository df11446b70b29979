"""The tables on the reach of shifts are those of the committed runs."""

from __future__ import annotations

import reach_page


def test_a_cell_has_every_seed_in_order_and_says_how_many_were_solved() -> None:
    row = {"task": "probe_back", "tokens": 256, "attention": "mha", "shift": None, "group_size": None}
    runs = [
        {**row, "seed": 1, "test/accuracy": 0.991, "steps_to_stop_at": 400},
        {**row, "seed": 0, "test/accuracy": 0.5, "steps_to_stop_at": None},
        {**row, "seed": 2, "test/accuracy": 1.0, "steps_to_stop_at": 300},
    ]
    line = reach_page.back_table(runs).splitlines()[-1]
    assert line == "| `mha` | – | 0.500, 0.991, 1.000 (2 of 3: 300 to 400) | – | – |"
