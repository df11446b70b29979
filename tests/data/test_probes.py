"""Probes: answers are exact, follow from no asked token, and come in an endless stream that can be resumed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch

from sliceformer_lab.batch import NO_CLASS
from sliceformer_lab.config.compose import preset_job
from sliceformer_lab.config.schema import build_object
from sliceformer_lab.data.loader import LoaderPosition
from sliceformer_lab.data.probes.base import Probe, Sizes
from sliceformer_lab.data.probes.floors import commonest_share
from sliceformer_lab.data.probes.generators import PROBES
from sliceformer_lab.data.probes.probe_data import ProbeData
from sliceformer_lab.data.spec import LoadPlan
from sliceformer_lab.errors import ConfigError

LEVELS = [(name, level) for name in PROBES for level in ("easy", "standard", "hard")]


def recall(row: list[Any], symbols: int) -> list[float]:
    known: dict[int, int] = {}
    answers: list[float] = []
    before = 0
    for token in row:
        key, value = token if isinstance(token, list) else (token, 0)
        if value or key > symbols:  # a pair in one token, or the value behind its key
            known[key if value else before] = max(value, key if not value else 0) - symbols - 1
            answers.append(NO_CLASS)
        else:
            answers.append(known.get(key, NO_CLASS) if key else NO_CLASS)
        before = key
    return answers


def select(row: list[int], symbols: int) -> list[float]:
    found = iter([symbol for symbol in row if symbol < symbols])
    return [next(found) if token == symbols + 1 else NO_CLASS for token in row]


def words(row: list[int], size: int) -> list[float]:
    letters = {6: 3, 60: 5}[size]
    even = [p for p in permutations(range(letters)) if round(np.linalg.det(np.eye(letters)[list(p)])) == 1]
    group = list(permutations(range(letters))) if size == 6 else even
    state, answers = tuple(range(letters)), []
    for element in row:
        state = tuple(group[element][letter] for letter in state)
        answers.append(float(group.index(state)))
    return answers


def solver(probe: Probe) -> Callable[[Any], list[float]]:
    sizes = probe.sizes
    return {
        "Count": lambda row: [NO_CLASS] * (len(row) - 1) + [row.count(1)],
        "Recall": lambda row: recall(row, sizes.vocabulary),
        "Back": lambda row: [NO_CLASS] * sizes.distance + row[: -sizes.distance],
        "Rank": lambda row: sorted(number for (number,) in row),
        "Select": lambda row: select(row, sizes.vocabulary),
        "Hist": lambda row: [min(row.count(symbol), 8) - 1 for symbol in row],
        "Words": lambda row: words(row, sizes.vocabulary),
    }[type(probe).__name__]


def probe_at(name: str, level: str) -> Probe:
    kind = PROBES[name]
    return kind(kind.levels[level])  # type: ignore[index]


@pytest.mark.parametrize(("name", "level"), LEVELS)
def test_plain_solver_finds_every_answer(name: str, level: str) -> None:
    probe = probe_at(name, level)
    assert probe.fault() is None
    inputs, targets = probe.draw(np.random.default_rng(0), 20)
    assert inputs.shape[:2] == targets.shape == (20, probe.sizes.max_len)
    np.testing.assert_array_equal([solver(probe)(row) for row in inputs.tolist()], targets)
    if probe.vocab_size:
        assert inputs.min() >= 0 and inputs.max() < probe.vocab_size and targets.max() < probe.classes


@pytest.mark.parametrize(("name", "level"), [case for case in LEVELS if case[1] != "hard" and case[0] != "rank"])
def test_asked_token_and_position_give_chance_and_no_more(name: str, level: str) -> None:
    """The best table from (token, position) to answer, made from one draw, scores chance on another."""
    probe = probe_at(name, level)
    (inputs, targets), (others, answers) = (probe.draw(np.random.default_rng(seed), 20_000) for seed in (0, 1))
    places = np.broadcast_to(np.arange(targets.shape[1]), targets.shape)

    def cells(ids: np.ndarray) -> np.ndarray:
        code: np.ndarray = ids if ids.ndim == 2 else ids[..., 0] * probe.vocab_size + ids[..., 1]
        return code * targets.shape[1] + places

    asked, of, also, true = targets != NO_CLASS, cells(inputs), answers != NO_CLASS, cells(others)
    table = np.zeros((int(max(of.max(), true.max())) + 1, probe.classes))
    np.add.at(table, (of[asked], targets[asked]), 1)
    right = (table.argmax(1)[true] == answers)[also].mean()
    assert right == pytest.approx(probe.chance, abs=3 * (probe.chance / also.sum()) ** 0.5 + 0.002)


def test_chance_of_rank_is_that_of_the_mean_given_position_and_own_number() -> None:
    probe = probe_at("rank", "standard")
    inputs, targets = probe.draw(np.random.default_rng(0), 100_000)
    bins = (inputs[:, 0, 0] / 12**0.5 * 60 + 30).astype(int)  # the first token holds any of the ranks
    right = []
    for place in range(16):
        mean = np.bincount(bins, targets[:, place]) / np.bincount(bins)
        right.append((np.abs(targets - mean[bins][:, None]).argmin(1) == place).mean())
    assert np.mean(right) == pytest.approx(probe.chance, abs=0.003)
    assert probe.chance == pytest.approx(0.300, abs=0.002)


def test_floors_are_those_that_were_calibrated() -> None:
    chance = {"count": 1 / 9, "recall": 1 / 32, "back": 1 / 16, "select": 1 / 8, "hist": 0.216, "words": 0.271}
    for name, value in chance.items():
        assert probe_at(name, "standard").chance == pytest.approx(value, abs=5e-4)
    assert probe_at("recall", "standard").bag_level == pytest.approx(0.208, abs=5e-4)
    assert probe_at("back", "standard").bag_level == pytest.approx(0.152, abs=6e-4)
    assert probe_at("select", "easy").bag_level == pytest.approx(0.412, abs=5e-4)


@pytest.mark.parametrize(("drawn", "symbols"), [(1, 5), (4, 8), (31, 16), (64, 8192)])
def test_commonest_share_is_that_of_drawn_symbols(drawn: int, symbols: int) -> None:
    drawings = np.random.default_rng(0).integers(0, symbols, (4000, drawn))
    shares = [np.bincount(row).max() / drawn for row in drawings]
    assert commonest_share(drawn, symbols) == pytest.approx(np.mean(shares), abs=4 * np.std(shares) / 4000**0.5 + 1e-9)


DIGESTS = {
    "count": "bd90c8439b87",
    "recall": "30fb149c95eb",
    "back": "33c4332f65b3",
    "rank": "e3fff42e2b01",
    "select": "098114231451",
    "hist": "3e89db5a3120",
    "words": "4c200c0c9521",
}


@pytest.mark.parametrize("name", PROBES)
def test_sequences_of_a_seed_never_change(name: str) -> None:
    data = data_of(name)
    assert data.content_sha256()[:12] == DIGESTS[name]
    assert data_of(name, seed=1).content_sha256() == data.content_sha256()


def data_of(name: str, *, seed: int = 0, batch_size: int = 4, **options: Any) -> ProbeData:
    plan = LoadPlan(seed=seed, steps_between_scores=5)
    data = ProbeData(plan, probe=name, batch_size=batch_size, **options)  # type: ignore[arg-type]
    data.setup()
    return data


def test_runs_of_all_seeds_have_the_training_data_of_one_generator() -> None:
    first, seed, generator, sizes = (
        data_of("back", **options).digests()["train"]
        for options in ({}, {"seed": 1}, {"generator_seed": 1}, {"distance": 3})
    )
    assert first == seed and len({first, generator, sizes}) == 3


def test_training_sequences_depend_on_step_and_seeds_and_go_on_where_an_epoch_was_interrupted() -> None:
    def draw_batches(step: int, batches: int = 0, **options: Any) -> list[torch.Tensor]:
        data = data_of("back", **options)
        data._place = lambda: LoaderPosition(step, batches)  # type: ignore[method-assign]
        return [batch.inputs for batch in data.train_dataloader()]

    first, *others = draw_batches(0), draw_batches(5), draw_batches(0, seed=1), draw_batches(0, generator_seed=1)
    for other in others:
        assert len(first) == len(other) == 5 and not any(torch.equal(a, b) for a in first for b in other)
    torch.testing.assert_close(draw_batches(0, 3), first[3:])
    torch.testing.assert_close(draw_batches(3)[:2], first[3:])  # other epochs, same steps


def test_level_fills_the_sizes_and_each_may_be_set_alone() -> None:
    assert data_of("back").generator.sizes == Sizes(32, vocabulary=16, distance=5)
    assert data_of("back", max_len=128, distance=37).generator.sizes == Sizes(128, vocabulary=16, distance=37)
    assert data_of("back", level="hard", vocabulary=4).generator.sizes == Sizes(512, vocabulary=4, distance=37)


@pytest.mark.parametrize(
    ("probe", "options", "message"),
    [
        ("recall", {"pairs": 9}, r"pairs=9 need 36 tokens, and max_len=32; .* as pairs=8"),
        ("recall", {"pairs": 8, "vocabulary": 6}, "pairs=8 need as many different keys, and vocabulary=6"),
        ("recall", {"test_lengths": [32, 16]}, r"test_lengths=\[32, 16\]: pairs=8 need 32 tokens"),
        ("back", {"distance": 32}, "distance=32 reaches no token of 32; set a max_len above 32"),
        ("back", {"pairs": 3}, "the probe back has no such size; it has max_len, vocabulary, distance"),
        ("count", {"items": 16}, "items=16 marks do not fit before the last of 16 tokens; at most 15 do"),
        ("select", {"items": 17}, "items=17 and as many questions need 34 tokens, and max_len=32"),
        ("words", {"vocabulary": 7}, r"vocabulary=7 is the size of no group here; choose 6 \(S3\)"),
        ("rank", {"max_len": 1}, "rank orders 2 to 1000 numbers"),
        ("hist", {"vocabulary": 1}, "vocabulary=1 has nothing to tell apart"),
    ],
)
def test_impossible_options_are_refused(probe: str, options: dict[str, Any], message: str) -> None:
    node = preset_job(f"task=probe_{probe}")["data"]
    with pytest.raises(ConfigError, match=message):
        build_object(node | options, where="data")
