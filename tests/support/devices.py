"""The devices that tests run on: every test of a GPU has the same body as one that runs on the CPU."""

from __future__ import annotations

import pytest

GPU = pytest.param("cuda", marks=pytest.mark.gpu)
DEVICES = ("cpu", GPU)
NO_GPU = "no CUDA GPU"  # the reason for which tests marked gpu are skipped
