"""The page of the study of swaps says what its lines show: a better operator, and none."""

from __future__ import annotations

import json
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "studies" / "swap"))
import swap_page
import vit_page
from intervals import correct
from run_experiment import packed
from tuned_page import ROWS, tuned_results

SIZE = 1500


def lines(skills: dict[str, float]) -> swap_page.Lines:
    """Every row in all sets of layers, where a text is right with the probability `skills`, .8 by default."""
    generator = np.random.default_rng(0)
    found: dict[swap_page.Place, dict[str, dict[str, Any]]] = {}
    places = [(row, name, "layers") for row in swap_page.ROWS for name in swap_page.SETS]
    for place in (swap_page.ORIGINAL, *places):
        for task in swap_page.TASKS:
            right = generator.random(SIZE) < skills.get(place[0], 0.8)
            line = {"correct": np.packbits(right).tobytes().hex(), "size": SIZE, "accuracy": float(right.mean())}
            found.setdefault(place, {})[task] = line | {"errors": [0.1], "agreement": 0.9, "cosine": 0.8}
    return found


@pytest.mark.parametrize(
    ("skills", "sentence"),
    [
        ({"csp": 0.9}, "CSP is better than a random permutation and than no mixing, at both places"),
        ({}, "CSP is not shown to heal better than a random permutation"),
        ({"identity": 0.9, "csp": 0.79}, "It is worse than `identity`"),
    ],
)
def test_the_finding_follows_from_the_lines(skills: dict[str, float], sentence: str) -> None:
    assert sentence in swap_page.results(lines(skills))


def test_a_difference_is_paired_within_each_task() -> None:
    known = lines({})
    ours, theirs = ("csp", "all", "layers"), ("mean", "all", "layers")
    gaps = [correct(known[ours][t]) - correct(known[theirs][t]) for t in swap_page.TASKS]
    found = swap_page.difference(known, ours, theirs)
    assert found.mean == pytest.approx(np.mean([gap.mean() for gap in gaps]))
    assert found.variance == pytest.approx(sum(gap.var(ddof=1) for gap in gaps) / SIZE / 4)


def test_missing_rows_give_no_verdict_and_a_count_that_is_open() -> None:
    assert "No verdict yet" in swap_page.results({swap_page.ORIGINAL: lines({})[swap_page.ORIGINAL]})
    part = {place: tasks for place, tasks in lines({}).items() if place[1] not in ("top 4", "top 5", "all")}
    assert swap_page._count(part, "csp").startswith("at least ")


def test_the_page_of_the_vit_compares_pairs_of_the_same_seeds_and_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vit_page, "FOLDER", tmp_path)
    generator, written = np.random.default_rng(0), []
    for seed in vit_page.SEEDS:
        for arm in {arm for pair in vit_page.VIT_FAMILY for arm in pair}:
            right = generator.random(vit_page.NUM_TEST) < (0.9 if arm == ("csp", vit_page.BEST) else 0.8)
            written.append(json.dumps({"attention": arm[0], "arm": arm[1], "seed": seed} | packed(right)))
    (tmp_path / "vit.jsonl").write_text("\n".join(written[:-1]))
    assert "1 of 3 seeds are missing" in vit_page.vit_results()
    (tmp_path / "vit.jsonl").write_text("\n".join(written))
    rows = [line for line in vit_page.vit_results().splitlines() if line.startswith("| `csp` healed, fine-tuned")]
    assert len(rows) == len(vit_page.VIT_FAMILY)
    assert all(float(row.split("|")[3].split("±")[0]) == pytest.approx(10, abs=1) for row in rows)
    assert all(float(row.split("|")[4].replace("<", "")) < 0.05 for row in rows)


def test_fine_tuning_is_compared_over_seeds_and_texts_of_all_tasks() -> None:
    generator, written = np.random.default_rng(0), []
    for row, task, seed in product(ROWS, ("one", "two"), (0, 1, 2)):
        right = generator.random(SIZE) < {"csp": 0.9, "original": 0.97}.get(row, 0.8)
        facts = {"attention": row, "task": task, "size": SIZE, "accuracy": float(right.mean()), "layers": "all"}
        line = facts | {"correct": np.packbits(right).tobytes().hex()}
        written += [line | {"stage": "tuned", "seed": seed}, line | {"stage": "layers", "seed": 0}]
    page = tuned_results(written, ("one", "two"))
    assert "`csp` is above `csp_shift_only`" in page and "and below `original`." in page
    points = next(line.split("|")[2].split("±") for line in page.splitlines() if line.startswith("| `mean`"))
    assert float(points[0]) == pytest.approx(10, abs=1.5) and 1 < float(points[1]) < 3
    assert "1 of 48 runs are missing" in tuned_results(written[:-2], ("one", "two"))
