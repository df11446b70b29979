"""ListOps: published expressions have their values, and generated ones the published distribution."""

from __future__ import annotations

import math
import os
import signal
from collections import Counter
from itertools import count, islice
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from support import official_files
from support.golden_files import file_names, load
from support.plans import built_data, prepared

from sliceformer_lab.config.schema import ConfigError
from sliceformer_lab.data import parallel
from sliceformer_lab.data.parallel import in_order
from sliceformer_lab.data.sequences.base import SequenceSplit
from sliceformer_lab.data.sequences.expressions import MAX_DEPTH, VOCABULARY, distinct, draw, ids_of, value_of
from sliceformer_lab.data.sequences.listops import ListOps
from sliceformer_lab.errors import DataError

SMALL: dict[str, Any] = {"min_len": 10, "max_len": 60, "num_train": 300, "num_val": 40, "num_test": 50}


def listops(root: Path, **options: Any) -> ListOps:
    return prepared(ListOps(root=str(root), **(SMALL | {"processes": 1} | options)))


def examples(data: ListOps, stage: Any) -> list[tuple[bytes, int]]:
    split = data.splits[stage]
    assert isinstance(split, SequenceSplit)
    return [(bytes(split.store[row]), int(split.store.targets[row])) for row in split.rows]


@pytest.mark.parametrize("name", file_names("listops"))
def test_golden_expressions_have_their_ids_and_values(name: str) -> None:
    golden, arrays = load(name)
    rows = (arrays[key].tolist() for key in ("ids", "lens", "targets"))
    for source, ids, length, target in zip(golden["sources"], *rows, strict=True):
        assert list(ids_of(source)) == ids[:length]
        assert value_of(ids_of(source)) == target


def test_generated_expressions_are_as_long_as_they_may_be() -> None:
    assert {len(ids) for ids, _ in islice(distinct(0, 4, 7, 1), 300)} == {5, 6}


@pytest.mark.parametrize("ids", ["[MAX 1 2", "1 2", "[MAX X", "1 X", "", "<pad>"])
def test_an_incomplete_expression_has_no_value(ids: str) -> None:
    with pytest.raises(ValueError, match=r"expression|closes"):
        value_of(bytes(VOCABULARY.index(symbol) for symbol in ids.split()))


def within_chance(found: int, total: int, probability: float) -> bool:
    """Whether `found` of `total` is what the probability gives, to five standard deviations."""
    return abs(found - total * probability) < 5 * math.sqrt(total * probability * (1 - probability))


def test_draws_have_the_published_probabilities() -> None:
    rng, lists, arguments = Random(0), Counter[int](), Counter[int]()
    symbols, arities = Counter[int](), Counter[int]()
    for _ in range(4000):
        ids = draw(rng, 10**9)
        assert ids is not None
        opened = [0]  # arguments so far of the lists that are open
        for symbol in ids:
            symbols[symbol] += 1
            if VOCABULARY[symbol] == "X":
                arities[opened.pop()] += 1
                continue
            opened[-1] += 1
            arguments[len(opened)] += 1
            if VOCABULARY[symbol].startswith("["):
                lists[len(opened)] += 1
                opened.append(0)
    assert max(arguments) == MAX_DEPTH == 10 and lists[10] == 0
    assert all(within_chance(lists[depth], arguments[depth], 0.25) for depth in range(1, 10))
    assert set(arities) == set(range(2, 11))
    assert all(within_chance(n, arities.total(), 1 / 9) for n in arities.values())
    for names in (("[MIN", "[MAX", "[MED", "[SM"), tuple("0123456789")):
        found = [symbols[VOCABULARY.index(name)] for name in names]
        assert all(within_chance(n, sum(found), 1 / len(names)) for n in found)


def test_a_draw_beyond_the_largest_length_is_given_up() -> None:
    lengths = [None if ids is None else len(ids) for ids in (draw(rng, 20) for rng in map(Random, range(2000)))]
    whole = [draw(Random(seed), 10**9) for seed in range(2000)]
    assert lengths == [None if ids is None or len(ids) > 20 else len(ids) for ids in whole]


def test_a_larger_training_set_by_more_processes_keeps_the_others(tmp_path: Path) -> None:
    short = {"min_len": 3, "max_len": 12}  # many are drawn twice
    small, large = listops(tmp_path, **short), listops(tmp_path, num_train=500, processes=2, **short)
    assert not set(examples(small, "test")) & set(examples(listops(tmp_path, generator_seed=1), "test"))
    assert small.folder != large.folder
    every = [ids for stage in small.stages() for ids, _ in examples(small, stage)]
    assert len(set(every)) == len(every) == 390
    for stage in ("val", "test"):
        assert examples(small, stage) == examples(large, stage)
    assert set(examples(small, "train")) < set(examples(large, "train"))


def test_a_seed_always_gives_these_expressions() -> None:
    first = [" ".join(VOCABULARY[i] for i in ids) for ids, _ in islice(distinct(0, 10, 16, 1), 3)]
    assert first == [
        "[MAX 7 4 9 4 7 [MAX 7 0 9 6 4 X 3 X",
        "[MED 9 2 [MIN 8 2 3 2 7 8 1 X X",
        "[MAX [SM 7 7 8 4 4 7 X 0 7 X",
    ]


def test_limits_without_a_length_between_them_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="data: min_len=50 and max_len=51 leave no length between them"):
        built_data("sequences.listops.ListOps", root=str(tmp_path), min_len=50, max_len=51)


def test_too_many_expressions_are_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"only 400 different expressions of more than 3 and fewer than 5 .*data.max_len"
    ):
        listops(tmp_path, min_len=3, max_len=5, num_train=400)  # an operator and two digits


def test_official_files_give_the_published_ids(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"{tmp_path}/basic_train.tsv is missing; put .*data.source=generated"):
        listops(tmp_path, source="official")
    official_files.listops(tmp_path)
    data = listops(tmp_path, source="official", split_seed=0)
    assert data.sizes() == {"num_train": 40, "num_val": 10, "num_test": 10}
    spelled = [(" ".join(VOCABULARY[i] for i in ids), target) for ids, target in examples(data, "val")]
    assert spelled[3] == ("[SM 3 0 X", 3)
    assert data.places("val", [3]) == ["basic_val.tsv, line 5"]
    official, note = data.is_official()
    assert not official and "96000" in note


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"( ( ( [SM 3 ) 4 ) ] )", "has 1 columns separated by tabs, expected 2"),
        (b"( ( ( [SM 3 ) 4 ) ] )\t8", "the target is '8', but the value of the expression is 7"),
        (b"( ( ( [FIRST 3 ) 4 ) ] )\t3", r"the expression has '[FIRST', which is not a symbol of ListOps"),
        (b"( ( [SM 3 ) 4 )\t7", "the expression is not one complete expression"),
        (b"( ( ( [SM 3 ) \xe9 ) ] )\t7", "is not UTF-8"),
    ],
)
def test_wrong_row_is_reported_with_file_and_line(tmp_path: Path, line: bytes, expected: str) -> None:
    official_files.listops(tmp_path)
    path = tmp_path / "basic_val.tsv"
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(DataError) as caught:
        listops(tmp_path, source="official")
    assert f"{path}, line 12: {expected}" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["Source\tTarget\n", "( ( ( [SM 3 ) 4 ) ] )\t7\n"])
def test_file_without_header_or_rows_is_refused(tmp_path: Path, content: str) -> None:
    official_files.listops(tmp_path)
    (tmp_path / "basic_test.tsv").write_text(content)
    with pytest.raises(DataError, match=r"basic_test.tsv(, line 1: .*columns|.* has no expressions)"):
        listops(tmp_path, source="official")


def square(number: int) -> int:
    return number * number


def killed(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.parametrize("processes", [1, 2])
def test_endless_work_is_done_in_its_order(processes: int) -> None:
    assert list(islice(in_order(square, count(), processes), 20)) == [n * n for n in range(20)]
    assert list(in_order(square, range(5), processes)) == [0, 1, 4, 9, 16]


def test_a_killed_process_is_reported_with_advice() -> None:
    with pytest.raises(DataError, match=r"was killed.*fewer than data.processes=2"):
        list(in_order(killed, range(4), 2))


def test_the_pace_is_that_of_the_pieces_after_the_first(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    times = iter([60.0, 69.0, 72.0])  # the first piece waits for a minute, until processes have started
    monkeypatch.setattr(parallel, "time", SimpleNamespace(monotonic=lambda: next(times)))
    pace = parallel.Pace("graphs", 1000)
    for done in (100, 151, 220):
        pace.update(done)
    assert caplog.messages == ["220 of 1,000 graphs, 10 a second, 1.3 min left"]
