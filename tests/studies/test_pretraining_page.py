"""The tables of studies/pretraining.md are those of the committed results."""

from __future__ import annotations

import numpy as np
import pretraining_page
import pytest


def test_gain_is_against_the_longer_of_the_two_trainings_from_scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [
        {
            "task": "digits",
            "attention": "csp",
            "arm": arm,
            "seed": seed,
            "steps": steps,
            "metrics": {"test/accuracy": a},
        }
        for arm, steps, scores in (
            *(("scratch", 120, (0.5, 0.6)), ("scratch", 480, (0.8, 0.9))),
            *(("pretrained", 480, (0.83, 0.9)), ("pretrained", 1920, (0.1, 0.1))),
        )
        for seed, a in enumerate(scores)
    ]
    monkeypatch.setattr(pretraining_page, "read", lambda study: runs)
    np.testing.assert_allclose(
        pretraining_page.gains(pretraining_page.SETTINGS["digits"])["csp"], [3.0, 0.0], atol=1e-9
    )
