"""What holds in every test."""

from __future__ import annotations

import pytest
import torch
from support.devices import NO_GPU

from sliceformer_lab.sweeps import estimate


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips the tests marked gpu where there is none, before any fixture is built."""
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason=NO_GPU))


@pytest.fixture(autouse=True)
def no_measured_steps(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A sweep measures no steps before it starts, which takes ten seconds; tests of the estimate do."""
    if request.path.name != "test_estimate.py":
        monkeypatch.setattr(estimate, "FEWEST", 10**6)
