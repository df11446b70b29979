"""Every page of a study holds what its script makes of the committed results."""

from __future__ import annotations

import json
from importlib import import_module

import dense_page
import pytest

SCRIPTS = (
    "claims",
    "causal_page",
    "int8",
    "linear_rank",
    "pretraining_page",
    "probe_maps",
    "reach_page",
    "reviews_page",
    "training_page",
)


@pytest.mark.parametrize("name", SCRIPTS)
def test_page_is_current(name: str) -> None:
    script = import_module(name)
    assert script.PAGE.read_text(encoding="utf-8") == script.page(), "`make docs` writes it anew"


def test_page_on_classes_of_pixels_is_current() -> None:
    found = json.loads(dense_page.RESULTS.read_text(encoding="utf-8"))
    assert dense_page.PAGE.read_text(encoding="utf-8") == dense_page.page(found)
