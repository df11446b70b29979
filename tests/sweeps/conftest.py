"""What tests of sweeps share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """No libraries are imported before a fork: fake jobs and the measurements here need none."""
    monkeypatch.setattr("sliceformer_lab.sweeps.fork_server.LIBRARIES", ())
