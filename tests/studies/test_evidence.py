"""Every task has a committed run that learned, or a reason; the tables follow from the runs."""

from __future__ import annotations

import evidence

RESULTS = evidence.read(evidence.STUDY)


def test_every_task_has_a_run_that_learned_or_a_reason() -> None:
    assert set(evidence.untrained(RESULTS)) <= set(evidence.REASONS)
    assert set(evidence.REASONS) <= set(evidence.tasks())


def test_a_setting_has_one_run_and_at_most_one_without_mixing() -> None:
    runs = evidence.trained(RESULTS)
    assert len({run["setting"] for run in runs}) == len(runs)
    assert all(f"attention={result['attention']}" in result["command"] for result in RESULTS)
