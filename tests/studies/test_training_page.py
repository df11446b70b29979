"""studies/speed.md shows whole training steps as they were measured."""

from __future__ import annotations

import training_page


def test_shares_and_the_framework_add_up_to_a_step() -> None:
    """Lightning's step is data, model, optimiser and what the framework adds."""
    for line in training_page.steps_section().splitlines()[2:]:
        if line.startswith("| "):
            cells = line.strip("| ").split(" | ")
            assert 90 < sum(map(float, cells[7:10])) < 110, line  # the rest is the framework
